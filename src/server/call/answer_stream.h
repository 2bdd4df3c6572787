// SPDX-License-Identifier: Apache-2.0
// AnswerStream: splits an answer's text into the deltas that every chat API sends: reasoning,
// content and tool calls (parsers/answer_delta.h). It also counts the tokens of reasoning. An
// adapter converts the deltas into the form of its API.
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

// The formats in which the served model writes tool calls and reasoning.
struct AnswerFormats {
  parsers::ToolCallFormat tool_calls = parsers::ToolCallFormat::kNone;
  parsers::ReasoningFormat reasoning = parsers::ReasoningFormat::kNone;
  std::optional<TokenId> reasoning_end;  // the tag that closes reasoning, if it is a single token
};

// The formats to use: those given, else those that `codec`'s chat template shows. If it shows no
// format of calls, `family_format` names it, unless that is empty.
AnswerFormats find_answer_formats(const TextCodec& codec,
                                  std::optional<parsers::ToolCallFormat> tool_calls,
                                  std::optional<parsers::ReasoningFormat> reasoning,
                                  std::string_view family_format = {});

struct AnswerStreamOptions {
  parsers::AnswerParserOptions parser;
  std::optional<TokenId> reasoning_end;
  bool stream_reasoning = true;  // false: reasoning is sent as one delta when it is complete
  // Those of the client's `stop_token_ids` that are text, with that text: they cut the answer like
  // stop texts. Other ids end it like the model's own end tokens.
  std::vector<std::pair<TokenId, std::string>> text_stops = {};
  // The answer was constrained to calls: any text outside them belongs to an incomplete call and is
  // dropped.
  bool has_calls_alone = false;
};

class AnswerStream {
 public:
  explicit AnswerStream(AnswerStreamOptions options);

  // The deltas of an event. Those of the last event include the text that was held back.
  [[nodiscard]] parsers::AnswerDeltas add(const RequestEvent& event);

  // Number of tokens up to and including the closing tag of reasoning; 0 for an answer without
  // reasoning. It depends only on the tokens, not on how they are divided into events.
  [[nodiscard]] int64_t reasoning_tokens() const { return reasoning_tokens_; }

  // Whether a complete call was emitted.
  [[nodiscard]] bool called() const { return called_; }

  // OpenAI's finish reason; "tool_calls" for an answer that stopped after a call.
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
  std::string reasoning_;  // reasoning collected so far, if it is not streamed
  int64_t undecided_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
  bool reasoning_ended_ = false;  // the closing tag was drawn
  bool called_ = false;
};

}  // namespace heddle::server
