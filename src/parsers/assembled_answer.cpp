// SPDX-License-Identifier: Apache-2.0
#include "parsers/assembled_answer.h"

#include <utility>

#include "core/check.h"

namespace heddle::parsers {

void AssembledAnswer::add(AnswerDelta&& delta) {
  if (const auto* const more = std::get_if<ReasoningDelta>(&delta)) {
    reasoning += more->text;
  } else if (const auto* const text = std::get_if<ContentDelta>(&delta)) {
    content += text->text;
  } else if (auto* const begin = std::get_if<ToolCallBegin>(&delta)) {
    calls.push_back({.id = std::move(begin->id), .name = std::move(begin->name), .arguments = {}});
  } else if (const auto* const arguments = std::get_if<ArgumentsDelta>(&delta)) {
    HEDDLE_CHECK(!calls.empty());
    calls.back().arguments += arguments->json;
  } else if (const auto& end = std::get<ToolCallEnd>(delta); !end.complete) {
    HEDDLE_CHECK(!calls.empty());
    calls.pop_back();
    content += end.text;
  }
}

}  // namespace heddle::parsers
