// SPDX-License-Identifier: Apache-2.0
// ThinkingParser: parses answers that may begin with reasoning between two tags. The text after it
// is content, which may contain tool calls.
//
// White space before an opening tag, a tag with its repetitions, and line breaks after a tag belong
// to neither part. A tag may be misspelt: "<thinking>", "</ think >", "</think" before a line
// break, "</think>>". A closing tag that the reasoning quotes does not end it: `</think>`, unless
// the quote or backtick before the tag closes an earlier one on its line. An opening tag at the
// beginning of a content line begins reasoning again, unless it is in a code fence. Reasoning that
// is never closed extends to the end of the answer. Tool calls may interrupt it; white space after
// them is dropped. A closing tag in content without an open one is dropped if it is alone on its
// line. A format's marks around content are dropped (ContentMarks).
//
// Threading: thread-compatible. Cost: O(text), however it is split.
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
  // `calls` may be null: calls then stay text.
  ThinkingParser(const AnswerParserOptions& options, std::unique_ptr<ToolCallParser> calls);

  void push(std::string_view text, AnswerDeltas& out) override;
  void finish(TextEnd end, AnswerDeltas& out) override;

  [[nodiscard]] bool is_call_end(std::string_view text) const override {
    return calls_->is_call_end(text);
  }

  [[nodiscard]] Part part() const override;

 private:
  enum class State : uint8_t {
    kStart,      // at the beginning, where an opening tag may come
    kAfterOpen,  // after an opening tag: line breaks are skipped
    kReasoning,
    kCalls,       // in tool calls inside reasoning
    kAfterClose,  // after a closing tag: line breaks are skipped, and either tag may follow
    kContent,
  };

  // A tag at the beginning of a text.
  struct Tag {
    Match match = Match::kNo;
    size_t size = 0;
    std::string word = {};  // the tag's letters and digits, as in LooseTag::word
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
  // emits the tag as content if reasoning is emitted as content
  void emit_tag(std::string_view text, AnswerDeltas& out) const;

  void enter_reasoning(const Tag& tag);
  [[nodiscard]] Tag tag_at(std::string_view text, bool closing, TextEnd end) const;
  [[nodiscard]] Tag labelled_tag_at(std::string_view text, bool closing, TextEnd end) const;
  [[nodiscard]] Match label_at(std::string_view text, TextEnd end, size_t& size) const;
  [[nodiscard]] Match is_quoted(std::string_view behind, TextEnd end) const;
  void count_quotes(std::string_view text);
  [[nodiscard]] bool begins_mark(std::string_view text) const;
  [[nodiscard]] Match content_tag_at(std::string_view text) const;
  [[nodiscard]] Match begins_content(std::string_view text) const;

  const ReasoningTags tags_;
  const ContentMarks content_marks_;
  const bool separate_;
  const bool is_exact_;  // see AnswerParserOptions::is_held_to_form
  const std::unique_ptr<ToolCallParser> calls_;
  std::vector<std::string_view> call_marks_;
  std::string mark_bytes_;  // first bytes of the marks that may occur inside reasoning
  State state_;
  Patience patience_{kMaxHeaderBytes};
  bool inside_;                 // true: the answer begins inside reasoning
  bool follows_tag_ = false;    // nothing has been read since the last tag
  bool awaits_label_ = false;   // the label of the opening tag may follow
  bool content_begun_ = false;  // the tag at which content begins has been read
  std::string word_;            // word of the opening tag
  bool drops_space_ = false;    // a call inside reasoning just ended: white space is dropped
  char last_byte_ = '\n';       // last byte of the reasoning
  bool in_backticks_ = false;   // the last line of the reasoning has an open backtick
  bool in_quotes_ = false;
  UnreadText unread_;
};

}  // namespace heddle::parsers
