// SPDX-License-Identifier: Apache-2.0
// HarmonyParser parses the messages of gpt-oss models, a format called "harmony":
//
//   <|channel|>analysis<|message|>reasoning<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{..}<|call|>
//   <|start|>assistant<|channel|>final<|message|>content<|return|>
//
// The prompt ends with "<|start|>assistant", so an answer begins in a message's header. The marks
// are special tokens, and the text must contain them. Messages of the channel analysis are
// reasoning; messages to a recipient are calls, whose tool is the recipient without "functions.";
// all others are content. Text without a header is content, too. Consecutive messages of one kind
// are separated by an empty line.
//
// A header may lack any of its marks if its words identify it: "analysis<|message|>",
// "<|channel|>final Hi". A recipient may lack its "to=" in a commentary header, before a mark or
// the arguments: "commentary functions.f<|message|>{..}"; it may also lack "functions." if the
// request has the tool. A message to a tool that ends without a body is a call without arguments.
// Doubled and unrelated marks are dropped: no text contains them. In a header a mark may lack its
// bars or a bracket, and a mark with an unknown word is skipped. The same holds for the mark that
// begins a header, if a channel or a role follows it, and for the mark that ends a message, after a
// call or before the next header.
//
// Threading: thread-compatible. Cost: O(text), however it is split.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "parsers/answer_parser.h"
#include "parsers/json_arguments.h"
#include "parsers/marker_search.h"
#include "parsers/tool_names.h"
#include "parsers/unread_text.h"

namespace heddle::parsers {

class HarmonyParser final : public AnswerParser {
 public:
  // The most bytes of a header; a longer one is content.
  static constexpr size_t kMaxHarmonyHeaderBytes = 1024;

  // Marks that may end a message; `<|start|>` and `<|channel|>` also begin the next message's
  // header.
  static constexpr std::array<std::string_view, 5> kMessageEnds = {
      "<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"};

  // Whether a message to this recipient is a call of a tool.
  [[nodiscard]] static bool takes_name(std::string_view tool);

  explicit HarmonyParser(AnswerParserOptions options);

  void push(std::string_view text, AnswerDeltas& out) override;
  void finish(TextEnd end, AnswerDeltas& out) override;
  [[nodiscard]] Part part() const override;

 private:
  enum class State : uint8_t { kFirstHeader, kHeader, kReasoning, kContent, kCall, kAfterCall };

  // A recipient at the beginning of a text, and its number of bytes.
  struct Recipient {
    Match match = Match::kNo;
    size_t size = 0;
    std::string_view name = {};
  };

  // The part of a message's header that has been read.
  struct Header {
    Match match = Match::kNo;  // kYes: the header is complete and a message follows
    size_t size = 0;
    bool is_empty = false;  // the header ends without a message
    bool has_marks = false;
    std::string channel;
    std::string recipient;
  };

  void run(TextEnd end, AnswerDeltas& out);
  size_t step(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t take_header(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_body(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_call(std::string_view text, TextEnd end, AnswerDeltas& out);
  size_t read_after_call(std::string_view text, TextEnd end);
  void begin_call(const std::string& name, AnswerDeltas& out);
  void begin_message(const Header& header, AnswerDeltas& out);
  void emit(std::string_view text, AnswerDeltas& out);
  void end_call(bool complete, AnswerDeltas& out, bool cut = false);
  [[nodiscard]] JsonScanner argument_scanner() const;
  [[nodiscard]] Header read_header(std::string_view text, TextEnd end) const;
  [[nodiscard]] Recipient read_loose_recipient(std::string_view text, TextEnd end) const;
  [[nodiscard]] bool reads_calls() const;

  [[nodiscard]] bool dropped() const { return !options_.parallel_tool_calls && num_calls_ > 1; }

  const AnswerParserOptions options_;
  const ToolNames names_;
  State state_ = State::kFirstHeader;
  UnreadText unread_;
  Patience patience_{kMaxHarmonyHeaderBytes};
  JsonArguments arguments_;
  std::string tool_;  // name of the tool in the current call
  bool arguments_begun_ = false;
  size_t num_calls_ = 0;
  bool message_begins_ = false;
  char last_reasoning_ = '\n';  // last byte of the emitted reasoning
  char last_content_ = '\n';
  std::string call_text_;
};

}  // namespace heddle::parsers
