// SPDX-License-Identifier: Apache-2.0
// The formats of tool calls and of reasoning, their names in options and requests, and the
// detection of a model's formats from its chat template.
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
  kNone,  // calls are not parsed and stay text
  kQwen,
  kQwen3Coder,
  kDeepseekV3,  // DeepSeek V3, R1 and V3.1, whose formats the parser distinguishes
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
  kJson,  // a JSON object per call; used for forced calls of models without a format of their own
};

enum class ReasoningFormat : uint8_t {
  kNone,            // reasoning is not separated from content
  kThink,           // <think>..</think>; the answer begins outside, unless the prompt or the answer
                    // opens the tag
  kThinkFromStart,  // the same tags; the answer begins inside, unless the prompt closes the tag
  kKimi,            // reasoning between ◁think▷ and ◁/think▷
  kMistral,         // reasoning between [THINK] and [/THINK]
  kGemma,           // reasoning between <|channel>thought\n and <channel|>
  kSeed,            // reasoning between <seed:think> and </seed:think>
  kCohere,          // <|START_THINKING|>..<|END_THINKING|>, then content between marks
  kGranite,         // <think>..</think>, then content between <response> and </response>
  kHarmony,         // the messages of gpt-oss's analysis channel
};

// Parses a format's name, "qwen", "qwen3_coder", ..., "none", or another server's name for it.
// Error: kInvalidArgument, listing the names.
Result<ToolCallFormat> tool_call_format(std::string_view name);
Result<ReasoningFormat> reasoning_format(std::string_view name);

[[nodiscard]] std::string_view to_string(ToolCallFormat format);
[[nodiscard]] std::string_view to_string(ReasoningFormat format);

// Detects the format by the marks of calls and reasoning that a template contains; kNone if it has
// none. A template does not show whether a model reasons without an opening mark: such formats must
// be set explicitly.
[[nodiscard]] ToolCallFormat detect_tool_call_format(std::string_view chat_template);
[[nodiscard]] ReasoningFormat detect_reasoning_format(std::string_view chat_template);

// The tags around reasoning; empty for ReasoningFormat::kNone and kHarmony.
struct ReasoningTags {
  std::string_view open;
  std::string_view close;
  std::string_view label = {};  // a word after the opening tag that belongs to the tag
};

// Marks that a format writes around content; they are not part of the answer.
struct ContentMarks {
  std::span<const std::string_view> special;  // marks that are special tokens, which no other text
                                              // contains
  std::string_view open;                      // tags at which content begins and ends
  std::string_view close;
};

[[nodiscard]] ReasoningTags tags_of(ReasoningFormat format);
[[nodiscard]] ContentMarks content_marks_of(ReasoningFormat format);

// Whether an answer to `prompt` begins inside reasoning: yes if the prompt ends with the opening
// tag, no if it ends with the closing tag, otherwise the format's default. Only the prompt's end
// counts, so that tags in a user's message have no effect. `unfinished` is the part of the answer
// that exists already; the last tag in it decides.
[[nodiscard]] bool starts_in_reasoning(ReasoningFormat format, std::string_view prompt,
                                       std::string_view unfinished = {});

// Whether an answer to `prompt` begins outside of reasoning and has none, because the prompt ends
// with the closing tag.
[[nodiscard]] bool reasoning_is_closed(ReasoningFormat format, std::string_view prompt,
                                       std::string_view unfinished = {});

// Whether the format's marks are special tokens, so that the detokenizer must output them.
[[nodiscard]] bool needs_special_tokens(ToolCallFormat format);
[[nodiscard]] bool needs_special_tokens(ReasoningFormat format);

}  // namespace heddle::parsers
