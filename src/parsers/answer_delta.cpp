// SPDX-License-Identifier: Apache-2.0
#include "parsers/answer_delta.h"

#include <utility>

#include "core/check.h"

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

void append(AnswerDelta&& delta, AnswerDeltas& out) {
  if (const auto* const more = std::get_if<ReasoningDelta>(&delta)) {
    add_reasoning(more->text, out);
  } else if (const auto* const text = std::get_if<ContentDelta>(&delta)) {
    add_content(text->text, out);
  } else if (const auto* const arguments = std::get_if<ArgumentsDelta>(&delta)) {
    add_arguments(arguments->index, arguments->json, out);
  } else {
    out.push_back(std::move(delta));
  }
}

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
    if (end.cut) {
      calls.back().complete = false;
      return;
    }
    calls.pop_back();
    content += end.text;
  }
}

}  // namespace heddle::parsers
