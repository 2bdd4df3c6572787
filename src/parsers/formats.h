// SPDX-License-Identifier: Apache-2.0
// The formats of tool calls and of reasoning, by the names that options and requests use, and how
// to detect a model's formats in its chat template.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

namespace heddle::parsers {

enum class ToolCallFormat : uint8_t {
  kNone,  // calls stay text
  kQwen,
  kQwen3Coder,
  kDeepseekV3,  // V3, R1 and V3.1, which the parser distinguishes
  kDeepseekV32,
  kGlm,
  kLlama3,
  kMistral,
  kPythonic,
  kKimiK2,
  kGemma4,
  kMinimaxM2,
  kSeedOss,
  kLfm2,
  kGranite,  // Granite 3; Granite 4 writes kQwen
  kNemotronV2,
  kCohere,
  kHarmony,
  kJson,  // a JSON object per call; used for forced calls of models with kNone
};

enum class ReasoningFormat : uint8_t {
  kNone,            // reasoning stays text
  kThink,           // <think>..</think>; begins outside unless the prompt or answer opens it
  kThinkFromStart,  // the same tags; begins inside unless the prompt closes it
  kKimi,            // ◁think▷..◁/think▷
  kMistral,         // [THINK]..[/THINK]
  kGemma,           // <|channel>thought\n..<channel|>
  kSeed,            // <seed:think>..</seed:think>
  kCohere,          // <|START_THINKING|>..<|END_THINKING|>, then content between marks
  kGranite,         // <think>..</think>, then content between <response> and </response>
  kHarmony,         // the analysis channel
};

// Parses "qwen", "qwen3_coder", ..., "none", or another server's name for one. Error:
// kInvalidArgument, listing the names.
Result<ToolCallFormat> tool_call_format(std::string_view name);
Result<ReasoningFormat> reasoning_format(std::string_view name);

[[nodiscard]] std::string_view to_string(ToolCallFormat format);
[[nodiscard]] std::string_view to_string(ReasoningFormat format);

// Detects the format by the marks for calls and reasoning in a template; kNone without marks. A
// template does not show whether a model always reasons without marks: such formats must be set
// explicitly.
[[nodiscard]] ToolCallFormat detect_tool_call_format(std::string_view chat_template);
[[nodiscard]] ReasoningFormat detect_reasoning_format(std::string_view chat_template);

// The tags around reasoning; empty for kNone and kHarmony.
struct ReasoningTags {
  std::string_view open;
  std::string_view close;
  std::string_view label = {};  // a word that belongs to the opening tag and follows it
};

// Marks that a format writes around content; they are not part of the answer.
struct ContentMarks {
  std::span<const std::string_view> special;  // special tokens, which no text contains
  std::string_view open;                      // tags at which content begins and ends
  std::string_view close;
};

[[nodiscard]] ReasoningTags tags_of(ReasoningFormat format);
[[nodiscard]] ContentMarks content_marks_of(ReasoningFormat format);

// Whether an answer to `prompt` begins inside reasoning: yes if the prompt ends with the opening
// tag, no if it ends with the closing one, otherwise the format's default. Only the end is
// considered, so that no tag in a user's message counts. `unfinished` is the answer so far; the
// last tag in it decides.
[[nodiscard]] bool starts_in_reasoning(ReasoningFormat format, std::string_view prompt,
                                       std::string_view unfinished = {});

// Whether an answer to `prompt` begins outside and has no reasoning: the prompt ends with the
// closing tag.
[[nodiscard]] bool reasoning_is_closed(ReasoningFormat format, std::string_view prompt,
                                       std::string_view unfinished = {});

// Whether the format's marks are special tokens, which the detokenizer must then keep.
[[nodiscard]] bool needs_special_tokens(ToolCallFormat format);
[[nodiscard]] bool needs_special_tokens(ReasoningFormat format);

}  // namespace heddle::parsers
