// SPDX-License-Identifier: Apache-2.0
// Reads answers of one set of tools, cut in several ways, and compares them with what a client is
// to see.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "parsers/answer_delta.h"
#include "parsers/answer_parser.h"

namespace heddle::parsers {

using LooseJson = nlohmann::ordered_json;

inline std::shared_ptr<const LooseJson> weather_tools() {
  static const auto kTools = std::make_shared<const LooseJson>(LooseJson::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object",
      "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}}])"));
  return kTools;
}

struct LooseOptions {
  ToolCallFormat calls = ToolCallFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  bool inside = false;
  TextEnd end = TextEnd::kStopped;
  bool is_forced = false;  // is_held_to_form
};

// In pieces of `piece` bytes; with `keeps_call_text` as answers that are sent as a whole.
inline AssembledAnswer read_loosely(const LooseOptions& options, std::string_view text,
                                    size_t piece, bool keeps_call_text,
                                    std::shared_ptr<const LooseJson> tools = weather_tools()) {
  const auto parser = make_answer_parser({.reasoning = options.reasoning,
                                          .starts_in_reasoning = options.inside,
                                          .tool_calls = options.calls,
                                          .tools = std::move(tools),
                                          .keep_call_text = keeps_call_text,
                                          .is_held_to_form = options.is_forced,
                                          .id_seed = "seed"});
  AnswerDeltas deltas;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    parser->push(text.substr(0, piece), deltas);
  }
  parser->finish(options.end, deltas);
  AssembledAnswer answer;
  for (AnswerDelta& delta : deltas) answer.add(std::move(delta));
  return answer;
}

struct Expected {
  std::string content;
  std::string reasoning;
  std::vector<std::pair<std::string, LooseJson>> calls;
};

inline void expect_read(const LooseOptions& options, std::string_view text,
                        const Expected& expected) {
  for (const size_t piece : {text.size(), size_t{1}, size_t{3}, size_t{8}}) {
    const AssembledAnswer answer =
        read_loosely(options, text, std::max<size_t>(piece, 1), piece == text.size());
    EXPECT_EQ(answer.content, expected.content) << text << " in " << piece;
    EXPECT_EQ(answer.reasoning, expected.reasoning) << text << " in " << piece;
    std::vector<std::pair<std::string, LooseJson>> calls;
    for (const ToolCall& call : answer.calls) {
      EXPECT_TRUE(call.complete) << text << " in " << piece;
      calls.emplace_back(call.name, LooseJson::parse(call.arguments, nullptr, false));
    }
    EXPECT_EQ(calls, expected.calls) << text << " in " << piece;
  }
}

inline void expect_weather(ToolCallFormat format, const std::vector<std::string>& texts,
                           std::string_view content = "") {
  const LooseJson arguments = {{"city", "Paris"}, {"days", 3}};
  for (const std::string& text : texts) {
    expect_read({.calls = format}, text, {std::string(content), "", {{"get_weather", arguments}}});
  }
}

}  // namespace heddle::parsers
