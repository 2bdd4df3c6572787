// SPDX-License-Identifier: Apache-2.0
// AnswerParser converts the text of one answer, as it arrives, to deltas. Start here.
//
//   auto parser = make_answer_parser({.reasoning = ReasoningFormat::kThink, ...});
//   parser->push("<think>Hm", deltas);   parser->push("m</think>Hi", deltas);
//   parser->finish(TextEnd::kStopped, deltas);  // ReasoningDelta "Hm", "m", ContentDelta "Hi"
//
// Text is held back only while it may still become a mark. Malformed marks, calls and tags are
// never errors: a missing, doubled or misspelt mark affects nothing else, and text that cannot be
// interpreted becomes content or an incomplete call.
//
// Threading: thread-compatible. Cost: O(text), independent of how it is split.
// Memory:    the text held back: some bytes in prose, at most 16 KiB at the beginning of a call, at
// most 4 MiB of an argument that cannot be emitted in parts; with keep_call_text also the call's
// text.
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
  bool starts_in_reasoning = false;  // the answer begins inside reasoning (starts_in_reasoning() in
                                     // formats.h)
  bool separate_reasoning = true;    // false: reasoning is emitted as content, including its tags

  ToolCallFormat tool_calls = ToolCallFormat::kNone;
  // The request's list of tools. Null or empty: calls are not parsed and stay text. If schemas
  // contain references by name, parameter types need point_tools() (parameter_type.h).
  std::shared_ptr<const nlohmann::ordered_json> tools;
  bool parallel_tool_calls = true;  // false: calls after the first are dropped
  bool keep_call_text = false;      // fills in ToolCallEnd::text, for answers that are sent as a
                                    // whole
  // A grammar forces the answer's calls into the format. Only exact marks count, so that other text
  // that the grammar allows is not read as part of a call.
  bool is_held_to_form = false;

  // Seed for generated call ids: equal seeds give equal ids.
  std::string id_seed;
};

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;

  // Appends the deltas that `text` completes to `out`.
  virtual void push(std::string_view text, AnswerDeltas& out) = 0;

  // Ends the answer with the reason `end` and appends the text that was held back. Called once,
  // last.
  virtual void finish(TextEnd end, AnswerDeltas& out) = 0;

  // Whether `text`, without white space around it, is a mark that ends calls in this format. If an
  // answer was stopped there, its calls are complete.
  [[nodiscard]] virtual bool is_call_end(std::string_view text) const {
    (void)text;
    return false;
  }

  // The part of the answer to which the last text belongs. kUndecided: it is not yet known whether
  // the answer begins with reasoning.
  enum class Part : uint8_t { kUndecided, kReasoning, kContent };

  [[nodiscard]] virtual Part part() const = 0;
};

[[nodiscard]] std::unique_ptr<AnswerParser> make_answer_parser(AnswerParserOptions options);

// The parser of calls in content; null for formats whose calls stay text, and for gpt-oss.
[[nodiscard]] std::unique_ptr<ToolCallParser> make_tool_call_parser(
    const AnswerParserOptions& options);

// Derives a call's id from its arguments: "call_" and 24 hexadecimal digits; for Mistral nine
// letters and digits, which its templates require; for Kimi "functions.NAME:INDEX".
[[nodiscard]] std::string make_call_id(ToolCallFormat format, std::string_view seed,
                                       std::string_view name, size_t index);

}  // namespace heddle::parsers
