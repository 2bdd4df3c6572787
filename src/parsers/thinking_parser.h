// SPDX-License-Identifier: Apache-2.0
// ThinkingParser: answers that may begin with reasoning between two tags; what follows it is
// content with tool calls.
//
// White space before an opening tag, the tag, however often it is repeated, and line breaks after a
// tag belong to no part. Reasoning that is never closed is reasoning to the end, but for a tool
// call inside of it: models forget to close.
//
// Threading: thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/answer_parser.h"
#include "parsers/tool_call_parser.h"
#include "parsers/unread_text.h"

namespace heddle::parsers {

class ThinkingParser final : public AnswerParser {
 public:
  // `calls` may be null: calls stay text.
  ThinkingParser(const AnswerParserOptions& options, std::unique_ptr<ToolCallParser> calls);

  void push(std::string_view text, AnswerDeltas& out) override;
  void finish(AnswerDeltas& out) override;
  [[nodiscard]] Part part() const override;

 private:
  enum class State : uint8_t {
    kStart,      // an opening tag may come
    kAfterOpen,  // line breaks are passed over
    kReasoning,
    kAfterClose,  // line breaks are passed over
    kContent,
  };

  size_t step(std::string_view text, bool at_end, AnswerDeltas& out);
  size_t read_start(std::string_view text, bool at_end, AnswerDeltas& out);
  size_t read_reasoning(std::string_view text, bool at_end, AnswerDeltas& out);
  size_t skip_newlines(std::string_view text, State next, AnswerDeltas& out);
  void run(bool at_end, AnswerDeltas& out);
  void emit_reasoning(std::string_view text, AnswerDeltas& out) const;
  void emit_tag(std::string_view text, AnswerDeltas& out) const;  // of reasoning that is content

  const ReasoningTags tags_;
  const bool separate_;
  const std::unique_ptr<ToolCallParser> calls_;
  std::vector<std::string_view> marks_;  // that end reasoning
  State state_;
  bool inside_;  // the answer begins inside reasoning
  UnreadText unread_;
};

}  // namespace heddle::parsers
