// SPDX-License-Identifier: Apache-2.0
// The formats of tool calls and of reasoning that the parsers know, by the names that options and
// requests use, and how to tell a model's formats from its chat template.
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
  kDeepseekV3,  // V3, R1 and V3.1: the parser tells them apart
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
  kJson,  // one call as a JSON object; no model's, but of calls that are forced on those with kNone
};

enum class ReasoningFormat : uint8_t {
  kNone,            // reasoning stays text
  kThink,           // <think>..</think>, outside unless the prompt or the answer opens it
  kThinkFromStart,  // the same, inside unless the prompt closed it
  kKimi,            // ◁think▷..◁/think▷
  kMistral,         // [THINK]..[/THINK]
  kGemma,           // <|channel>thought\n..<channel|>
  kSeed,            // <seed:think>..</seed:think>
  kCohere,          // <|START_THINKING|>..<|END_THINKING|>, then content between marks
  kGranite,         // <think>..</think>, then content between <response> and </response>
  kHarmony,         // the analysis channel
};

// "qwen", "qwen3_coder", ..., "none". Some have other servers' names beside. Error:
// kInvalidArgument, with the names there are.
Result<ToolCallFormat> tool_call_format(std::string_view name);
Result<ReasoningFormat> reasoning_format(std::string_view name);

[[nodiscard]] std::string_view to_string(ToolCallFormat format);
[[nodiscard]] std::string_view to_string(ReasoningFormat format);

// By the marks that a template writes for calls and reasoning, kNone where it writes none. A
// template cannot tell a model that always reasons without saying so from one that never does:
// name those.
[[nodiscard]] ToolCallFormat detect_tool_call_format(std::string_view chat_template);
[[nodiscard]] ReasoningFormat detect_reasoning_format(std::string_view chat_template);

// The tags around reasoning, empty for kNone and kHarmony.
struct ReasoningTags {
  std::string_view open;
  std::string_view close;
  std::string_view label = {};  // a word after the opening tag that is part of it
};

// The marks that a format writes around content; they are never part of an answer.
struct ContentMarks {
  std::span<const std::string_view> special;  // special tokens: no text has them
  std::string_view open;                      // tags where content begins, and where it ends
  std::string_view close;
};

[[nodiscard]] ReasoningTags tags_of(ReasoningFormat format);
[[nodiscard]] ContentMarks content_marks_of(ReasoningFormat format);

// Whether an answer to `prompt` begins inside reasoning: yes if the prompt ends with the opening
// tag, no if it ends with the closing one, else as the format has it. Only the end counts, so that
// no tag in a user's message is taken for the template's. `unfinished` is what the answer says
// already; the last tag in it counts.
[[nodiscard]] bool starts_in_reasoning(ReasoningFormat format, std::string_view prompt,
                                       std::string_view unfinished = {});

// Whether an answer to `prompt` begins outside and has no reasoning: the closing tag is the last.
[[nodiscard]] bool reasoning_is_closed(ReasoningFormat format, std::string_view prompt,
                                       std::string_view unfinished = {});

// Whether the format's marks are special tokens, which must be left in the text then.
[[nodiscard]] bool needs_special_tokens(ToolCallFormat format);
[[nodiscard]] bool needs_special_tokens(ReasoningFormat format);

}  // namespace heddle::parsers
