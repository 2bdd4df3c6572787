// SPDX-License-Identifier: Apache-2.0
#include "parsers/answer_delta.h"

namespace heddle::parsers {

void add_reasoning(std::string_view text, AnswerDeltas& out) {
  if (text.empty()) return;
  if (auto* const last = out.empty() ? nullptr : std::get_if<ReasoningDelta>(&out.back())) {
    last->text += text;
  } else {
    out.emplace_back(ReasoningDelta{std::string(text)});
  }
}

void add_content(std::string_view text, AnswerDeltas& out) {
  if (text.empty()) return;
  if (auto* const last = out.empty() ? nullptr : std::get_if<ContentDelta>(&out.back())) {
    last->text += text;
  } else {
    out.emplace_back(ContentDelta{std::string(text)});
  }
}

void add_arguments(size_t index, std::string_view json, AnswerDeltas& out) {
  if (json.empty()) return;
  auto* const last = out.empty() ? nullptr : std::get_if<ArgumentsDelta>(&out.back());
  if (last != nullptr && last->index == index) {
    last->json += json;
  } else {
    out.emplace_back(ArgumentsDelta{index, std::string(json)});
  }
}

}  // namespace heddle::parsers
