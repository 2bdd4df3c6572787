// SPDX-License-Identifier: Apache-2.0
// AnswerParser reads the text of one answer, as it arrives, into deltas. Start here.
//
//   auto parser = make_answer_parser({.reasoning = ReasoningFormat::kThink, ...});
//   parser->push("<think>Hm", deltas);   parser->push("m</think>Hi", deltas);
//   parser->finish(TextEnd::kStopped, deltas);  // ReasoningDelta "Hm", "m", ContentDelta "Hi"
//
// Only text that may still become a mark is held back. Malformed marks, calls and tags are never
// errors: a missing, doubled or misspelt mark affects nothing else, and text without meaning
// becomes content or an incomplete call.
//
// Threading: thread-compatible. Cost: O(text), independent of how it is split.
// Memory:    what is held back: some bytes in prose, at most 16 KiB at a call's beginning, at most
//            4 MiB of an argument that cannot be emitted in part; with keep_call_text also the
//            call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "parsers/answer_delta.h"
#include "parsers/formats.h"

namespace heddle::parsers {

class ToolCallParser;

struct AnswerParserOptions {
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  bool starts_in_reasoning = false;  // see starts_in_reasoning() in formats.h
  bool separate_reasoning = true;    // false: reasoning is emitted as content, including its tags

  ToolCallFormat tool_calls = ToolCallFormat::kNone;
  // The request's list of tools. Null or empty: calls stay text. If schemas refer to their parts by
  // name, parameter types need point_tools() (parameter_type.h).
  std::shared_ptr<const nlohmann::ordered_json> tools;
  bool parallel_tool_calls = true;  // false: calls after the first are dropped
  bool keep_call_text = false;      // see ToolCallEnd; for answers that are sent as a whole
  // A grammar constrains the calls to the format: only exact marks count, so that other text that
  // the grammar allows is not read as part of a call.
  bool is_held_to_form = false;

  // Seed of call ids: equal seeds give equal ids.
  std::string id_seed;
};

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;

  // Appends the deltas that `text` completes to `out`.
  virtual void push(std::string_view text, AnswerDeltas& out) = 0;

  // Ends the answer, as `end` says, and appends the text held back. Called once, last.
  virtual void finish(TextEnd end, AnswerDeltas& out) = 0;

  // Whether `text` is a mark that ends calls in this format, ignoring white space around it. An
  // answer that was stopped there has complete calls.
  [[nodiscard]] virtual bool is_call_end(std::string_view text) const {
    (void)text;
    return false;
  }

  // The part that the text read last belongs to: kUndecided until it is known whether the answer
  // begins with reasoning.
  enum class Part : uint8_t { kUndecided, kReasoning, kContent };

  [[nodiscard]] virtual Part part() const = 0;
};

[[nodiscard]] std::unique_ptr<AnswerParser> make_answer_parser(AnswerParserOptions options);

// The parser of calls in content; null where calls stay text and for gpt-oss.
[[nodiscard]] std::unique_ptr<ToolCallParser> make_tool_call_parser(
    const AnswerParserOptions& options);

// Derives an id of a call from its arguments: "call_" and 24 hexadecimal digits; for Mistral, whose
// templates require it, nine letters and digits; for Kimi "functions.NAME:INDEX".
[[nodiscard]] std::string make_call_id(ToolCallFormat format, std::string_view seed,
                                       std::string_view name, size_t index);

}  // namespace heddle::parsers
