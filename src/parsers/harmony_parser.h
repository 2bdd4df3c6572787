// SPDX-License-Identifier: Apache-2.0
// HarmonyParser reads the messages that gpt-oss models write, "harmony" by name:
//
//   <|channel|>analysis<|message|>reasoning<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{..}<|call|>
//   <|start|>assistant<|channel|>final<|message|>content<|return|>
//
// The prompt ends with "<|start|>assistant", so an answer begins in a message's header. Its marks
// are special tokens, which the text must have. Messages of the channel analysis are reasoning;
// those to a recipient are calls, by the recipient's name without "functions."; all others are
// content. Text that has no header is content, too. An empty line separates messages of one kind
// that follow each other.
//
// A header may lack any of its marks as long as its words say what it is: "analysis<|message|>",
// "<|channel|>final Hi". A recipient may lack its "to=" in a commentary header, before a mark or
// the arguments: "commentary functions.f<|message|>{..}", also without "functions." where the
// request has the tool. A message to a tool that ends without a body is a call without arguments.
// Marks that are doubled, or belong to nothing, are dropped: no text has them. Within a header a
// mark may lack its bars or a bracket, and one of an unknown word is passed over. So may the mark
// that begins a header, where a channel or a role follows it, and the one that ends a message,
// after a call or before the next header.
//
// Threading: thread-compatible. Cost: O(text), however it arrives.
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
  // A longer header is content.
  static constexpr size_t kMaxHarmonyHeaderBytes = 1024;

  // Marks that may end a message. `<|start|>` and `<|channel|>` begin the next one's header.
  static constexpr std::array<std::string_view, 5> kMessageEnds = {
      "<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"};

  // Whether a message to this tool is a call of it.
  [[nodiscard]] static bool takes_name(std::string_view tool);

  explicit HarmonyParser(AnswerParserOptions options);

  void push(std::string_view text, AnswerDeltas& out) override;
  void finish(TextEnd end, AnswerDeltas& out) override;
  [[nodiscard]] Part part() const override;

 private:
  enum class State : uint8_t { kFirstHeader, kHeader, kReasoning, kContent, kCall, kAfterCall };

  // A recipient at the front of a text, and its size there.
  struct Recipient {
    Match match = Match::kNo;
    size_t size = 0;
    std::string_view name = {};
  };

  // A message's header, as far as it was read.
  struct Header {
    Match match = Match::kNo;  // kYes: a message follows
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
  std::string tool_;  // tool that is called
  bool arguments_begun_ = false;
  size_t num_calls_ = 0;
  bool message_begins_ = false;
  char last_reasoning_ = '\n';  // last emitted byte
  char last_content_ = '\n';
  std::string call_text_;
};

}  // namespace heddle::parsers
