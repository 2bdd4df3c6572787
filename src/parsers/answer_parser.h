// SPDX-License-Identifier: Apache-2.0
// AnswerParser reads the text of one answer, as it arrives, into deltas. Start here.
//
//   auto parser = make_answer_parser({.reasoning = ReasoningFormat::kThink, ...});
//   parser->push("<think>Hm", deltas);   parser->push("m</think>Hi", deltas);
//   parser->finish(TextEnd::kStopped, deltas);  // ReasoningDelta "Hm", "m", ContentDelta "Hi"
//
// Text that may still become a mark is held back, no more than that. Malformed marks, calls and
// tags never are an error: a mark that is missing, doubled or misspelt costs itself only, and what
// has no meaning is content, or an incomplete call.
//
// Threading: thread-compatible. Cost: O(text), whatever its cuts.
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
  bool separate_reasoning = true;    // false: reasoning is content, its tags too

  ToolCallFormat tool_calls = ToolCallFormat::kNone;
  // The request's list of tools. Null or empty: calls stay text. Types of parameters that their
  // schemas give by names of parts need point_tools() (parameter_type.h).
  std::shared_ptr<const nlohmann::ordered_json> tools;
  bool parallel_tool_calls = true;  // false: calls after the first are dropped
  bool keep_call_text = false;      // see ToolCallEnd; for answers that are sent as a whole
  // The answer's form keeps its calls to the format: marks count only as the format spells them, so
  // that no text that the form allows is read as more of a call.
  bool is_held_to_form = false;

  // Ids of calls are made of it: the same one makes the same ids.
  std::string id_seed;
};

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;

  // Appends the deltas that `text` completes to `out`.
  virtual void push(std::string_view text, AnswerDeltas& out) = 0;

  // The answer has ended, which `end` says how; appends what was held back. Once, and nothing after
  // it.
  virtual void finish(TextEnd end, AnswerDeltas& out) = 0;

  // Whether `text` is a mark that ends calls in this format, white space around it aside. An answer
  // that was stopped at it has its calls whole.
  [[nodiscard]] virtual bool is_call_end(std::string_view text) const {
    (void)text;
    return false;
  }

  // Where the text stands that was read last: kUndecided until it is known whether the answer
  // begins with reasoning.
  enum class Part : uint8_t { kUndecided, kReasoning, kContent };

  [[nodiscard]] virtual Part part() const = 0;
};

[[nodiscard]] std::unique_ptr<AnswerParser> make_answer_parser(AnswerParserOptions options);

// The part of it that reads calls in content; null where calls stay text and for gpt-oss.
[[nodiscard]] std::unique_ptr<ToolCallParser> make_tool_call_parser(
    const AnswerParserOptions& options);

// An id for a call: "call_" and 24 hexadecimal digits; for Mistral, whose templates take nothing
// else, nine letters and digits; for Kimi "functions.NAME:INDEX". A function of its arguments.
[[nodiscard]] std::string make_call_id(ToolCallFormat format, std::string_view seed,
                                       std::string_view name, size_t index);

}  // namespace heddle::parsers
