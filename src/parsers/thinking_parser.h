// SPDX-License-Identifier: Apache-2.0
// ThinkingParser: answers that may begin with reasoning between two tags; what follows it is
// content with tool calls.
//
// White space before an opening tag, a tag, however often it is repeated, and line breaks after a
// tag belong to no part. A tag may be misspelt: "<thinking>", "</ think >", "</think" before a line
// break, "</think>>". A closing tag that the reasoning quotes does not end it: `</think>`, where
// the quote or backtick before it is the first of its line that is open. An opening tag that begins
// a line of the content begins reasoning again, unless it is in a code fence. Reasoning that is
// never closed is reasoning to the end, but for tool calls inside of it, behind which it goes on;
// white space behind them is dropped. A closing tag in content that closes nothing is dropped where
// it stands alone. The marks of a format around content are dropped (ContentMarks).
//
// Threading: thread-compatible. Cost: O(text), however it arrives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "parsers/answer_parser.h"
#include "parsers/marker_search.h"
#include "parsers/tool_call_parser.h"
#include "parsers/unread_text.h"

namespace heddle::parsers {

class ThinkingParser final : public AnswerParser {
 public:
  // `calls` may be null: calls stay text.
  ThinkingParser(const AnswerParserOptions& options, std::unique_ptr<ToolCallParser> calls);

  void push(std::string_view text, AnswerDeltas& out) override;
  void finish(TextEnd end, AnswerDeltas& out) override;

  [[nodiscard]] bool is_call_end(std::string_view text) const override {
    return calls_->is_call_end(text);
  }

  [[nodiscard]] Part part() const override;

 private:
  enum class State : uint8_t {
    kStart,      // an opening tag may come
    kAfterOpen,  // line breaks are passed over
    kReasoning,
    kCalls,       // inside of reasoning
    kAfterClose,  // line breaks are passed over; either tag may come again
    kContent,
  };

  // A tag at the front of a text.
  struct Tag {
    Match match = Match::kNo;
    size_t size = 0;
    std::string word = {};  // see LooseTag
  };

  size_t step(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_after_open(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_start(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_content(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_after_close(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_reasoning(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_mark(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t skip_newlines(std::string_view text, AnswerDeltas& out);
  [[nodiscard]] Match doubled_bracket(std::string_view text, TextEnd end);
  void run(TextEnd end, AnswerDeltas& out);
  void emit_reasoning(std::string_view text, AnswerDeltas& out);
  void emit_tag(std::string_view text, AnswerDeltas& out) const;  // if reasoning is emitted as
                                                                  // content

  void enter_reasoning(const Tag& tag);
  [[nodiscard]] Tag tag_at(std::string_view text, bool closing, TextEnd end) const;
  [[nodiscard]] Tag labelled_tag_at(std::string_view text, bool closing, TextEnd end) const;
  [[nodiscard]] Match label_at(std::string_view text, TextEnd end, size_t& size) const;
  [[nodiscard]] Match is_quoted(std::string_view behind, TextEnd end) const;
  void count_quotes(std::string_view text);
  [[nodiscard]] Match content_tag_at(std::string_view text) const;
  [[nodiscard]] Match begins_content(std::string_view text) const;

  const ReasoningTags tags_;
  const ContentMarks content_marks_;
  const bool separate_;
  const bool is_exact_;  // AnswerParserOptions::is_held_to_form
  const std::unique_ptr<ToolCallParser> calls_;
  std::vector<std::string_view> call_marks_;
  std::string mark_bytes_;  // first ones, of marks inside reasoning
  State state_;
  Patience patience_{kMaxHeaderBytes};
  bool inside_;                 // the answer begins inside reasoning
  bool follows_tag_ = false;    // nothing was read since the last tag
  bool awaits_label_ = false;   // the opening tag's label may come
  bool content_begun_ = false;  // the tag where content begins was read
  std::string word_;            // word of the opening tag
  bool drops_space_ = false;    // a call inside reasoning ended here
  char last_byte_ = '\n';       // last byte of the reasoning
  bool in_backticks_ = false;   // in the reasoning's last line
  bool in_quotes_ = false;
  UnreadText unread_;
};

}  // namespace heddle::parsers
