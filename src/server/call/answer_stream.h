// SPDX-License-Identifier: Apache-2.0
// AnswerStream: the events of one answer as every chat API sends them. It reads the model's text
// into deltas (parsers/answer_delta.h) and counts the tokens of its reasoning; an adapter
// translates the deltas into its own words.
//
//   AnswerStream stream(options);
//   for (AnswerDelta& delta : stream.add(event)) ...
//   if (event.finish) ... stream.finish_name(*event.finish) ...
//
// Threading: thread-confined.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/request.h>

#include "parsers/answer_parser.h"

namespace heddle::server {

class TextCodec;

// How the served model writes what is not plain text.
struct AnswerFormats {
  parsers::ToolCallFormat tool_calls = parsers::ToolCallFormat::kNone;
  parsers::ReasoningFormat reasoning = parsers::ReasoningFormat::kNone;
  std::optional<TokenId> reasoning_end;  // its closing tag, where that is one token
};

// The formats that `codec`'s chat template shows, where none is given. Where it shows none of
// calls, `family_format` names it, if it is not empty.
AnswerFormats find_answer_formats(const TextCodec& codec,
                                  std::optional<parsers::ToolCallFormat> tool_calls,
                                  std::optional<parsers::ReasoningFormat> reasoning,
                                  std::string_view family_format = {});

struct AnswerStreamOptions {
  parsers::AnswerParserOptions parser;
  std::optional<TokenId> reasoning_end;
  bool stream_reasoning = true;  // false: reasoning is one delta, once it is complete
  // The client's `stop_token_ids` that are text, with that text: they cut an answer as stop texts
  // do. Other ids end it as the model's own do.
  std::vector<std::pair<TokenId, std::string>> text_stops = {};
  // The answer was held to calls: text in it is what a call lacks its end to, and is left out.
  bool has_calls_alone = false;
};

class AnswerStream {
 public:
  explicit AnswerStream(AnswerStreamOptions options);

  // The deltas of an event; those of the last one hold the text that was held back, too.
  [[nodiscard]] parsers::AnswerDeltas add(const RequestEvent& event);

  // Tokens so far up to and with the closing tag; 0 for an answer that did not reason. It depends
  // on the tokens alone, however many come in one event.
  [[nodiscard]] int64_t reasoning_tokens() const { return reasoning_tokens_; }

  // Whether a call was emitted whole.
  [[nodiscard]] bool called() const { return called_; }

  // OpenAI's finish reason: "tool_calls" for an answer that stopped after a call.
  [[nodiscard]] std::string_view finish_name(const Finish& finish) const;

 private:
  void read(std::span<const TokenId> tokens, std::string_view text, parsers::TextEnd end,
            parsers::AnswerDeltas& deltas);
  void count(std::span<const TokenId> drawn, parsers::AnswerParser::Part before, bool reasoned);
  [[nodiscard]] parsers::TextEnd end_of(const Finish& finish) const;
  void gather_reasoning(bool ended, parsers::AnswerDeltas& deltas);

  std::unique_ptr<parsers::AnswerParser> parser_;
  const std::optional<TokenId> reasoning_end_;
  const bool stream_reasoning_;
  const std::vector<std::pair<TokenId, std::string>> text_stops_;
  const bool has_calls_alone_;
  std::string reasoning_;  // gathered
  int64_t undecided_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
  bool reasoning_ended_ = false;  // the closing tag was drawn
  bool called_ = false;
};

}  // namespace heddle::server
