// SPDX-License-Identifier: Apache-2.0
#include "parsers/formats.h"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace heddle::parsers {
namespace {

template <typename Format>
struct NamedFormat {
  std::string_view name;
  Format format;
};

// The first name of each format is the one that messages show.
constexpr std::array kToolCallNames = {
    NamedFormat<ToolCallFormat>{"none", ToolCallFormat::kNone},
    NamedFormat<ToolCallFormat>{"qwen", ToolCallFormat::kQwen},
    NamedFormat<ToolCallFormat>{"qwen25", ToolCallFormat::kQwen},
    NamedFormat<ToolCallFormat>{"hermes", ToolCallFormat::kQwen},
    NamedFormat<ToolCallFormat>{"qwen3_coder", ToolCallFormat::kQwen3Coder},
    NamedFormat<ToolCallFormat>{"qwen3_xml", ToolCallFormat::kQwen3Coder},
    NamedFormat<ToolCallFormat>{"deepseekv3", ToolCallFormat::kDeepseekV3},
    NamedFormat<ToolCallFormat>{"deepseekv31", ToolCallFormat::kDeepseekV3},
    NamedFormat<ToolCallFormat>{"deepseek_v3", ToolCallFormat::kDeepseekV3},
    NamedFormat<ToolCallFormat>{"deepseek_v31", ToolCallFormat::kDeepseekV3},
    NamedFormat<ToolCallFormat>{"deepseekv32", ToolCallFormat::kDeepseekV32},
    NamedFormat<ToolCallFormat>{"deepseek_v32", ToolCallFormat::kDeepseekV32},
    NamedFormat<ToolCallFormat>{"glm", ToolCallFormat::kGlm},
    NamedFormat<ToolCallFormat>{"glm45", ToolCallFormat::kGlm},
    NamedFormat<ToolCallFormat>{"glm47", ToolCallFormat::kGlm},
    NamedFormat<ToolCallFormat>{"llama3", ToolCallFormat::kLlama3},
    NamedFormat<ToolCallFormat>{"llama3_json", ToolCallFormat::kLlama3},
    NamedFormat<ToolCallFormat>{"mistral", ToolCallFormat::kMistral},
    NamedFormat<ToolCallFormat>{"pythonic", ToolCallFormat::kPythonic},
    NamedFormat<ToolCallFormat>{"kimi_k2", ToolCallFormat::kKimiK2},
    NamedFormat<ToolCallFormat>{"gemma4", ToolCallFormat::kGemma4},
    NamedFormat<ToolCallFormat>{"minimax_m2", ToolCallFormat::kMinimaxM2},
    NamedFormat<ToolCallFormat>{"seed_oss", ToolCallFormat::kSeedOss},
    NamedFormat<ToolCallFormat>{"lfm2", ToolCallFormat::kLfm2},
    NamedFormat<ToolCallFormat>{"granite", ToolCallFormat::kGranite},
    NamedFormat<ToolCallFormat>{"nemotron_v2", ToolCallFormat::kNemotronV2},
    NamedFormat<ToolCallFormat>{"cohere", ToolCallFormat::kCohere},
    NamedFormat<ToolCallFormat>{"gpt-oss", ToolCallFormat::kHarmony},
    NamedFormat<ToolCallFormat>{"openai", ToolCallFormat::kHarmony},
};

constexpr std::array kReasoningNames = {
    NamedFormat<ReasoningFormat>{"none", ReasoningFormat::kNone},
    NamedFormat<ReasoningFormat>{"qwen3", ReasoningFormat::kThink},
    NamedFormat<ReasoningFormat>{"deepseek-v3", ReasoningFormat::kThink},
    NamedFormat<ReasoningFormat>{"deepseek_v3", ReasoningFormat::kThink},
    NamedFormat<ReasoningFormat>{"glm45", ReasoningFormat::kThink},
    NamedFormat<ReasoningFormat>{"kimi_k2", ReasoningFormat::kThink},
    NamedFormat<ReasoningFormat>{"minimax_m2", ReasoningFormat::kThink},
    NamedFormat<ReasoningFormat>{"qwen3-thinking", ReasoningFormat::kThinkFromStart},
    NamedFormat<ReasoningFormat>{"deepseek-r1", ReasoningFormat::kThinkFromStart},
    NamedFormat<ReasoningFormat>{"deepseek_r1", ReasoningFormat::kThinkFromStart},
    NamedFormat<ReasoningFormat>{"step3", ReasoningFormat::kThinkFromStart},
    NamedFormat<ReasoningFormat>{"kimi", ReasoningFormat::kKimi},
    NamedFormat<ReasoningFormat>{"mistral", ReasoningFormat::kMistral},
    NamedFormat<ReasoningFormat>{"gemma4", ReasoningFormat::kGemma},
    NamedFormat<ReasoningFormat>{"seed_oss", ReasoningFormat::kSeed},
    NamedFormat<ReasoningFormat>{"cohere", ReasoningFormat::kCohere},
    NamedFormat<ReasoningFormat>{"granite", ReasoningFormat::kGranite},
    NamedFormat<ReasoningFormat>{"gpt-oss", ReasoningFormat::kHarmony},
    NamedFormat<ReasoningFormat>{"openai_gptoss", ReasoningFormat::kHarmony},
};

template <typename Names>
auto format_named(std::string_view name, const Names& names)
    -> Result<decltype(names.front().format)> {
  std::string known;
  for (const auto& entry : names) {
    if (entry.name == name) return entry.format;
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  return invalid_argument(
      fmt::format("there is no format \"{}\"; there are {}", name.substr(0, 40), known));
}

template <typename Format, typename Names>
std::string_view name_of_format(Format format, const Names& names) {
  for (const auto& entry : names) {
    if (entry.format == format) return entry.name;
  }
  return "none";
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view without_space_after(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\n\r") + 1);  // for a blank text npos + 1 is 0
}

}  // namespace

Result<ToolCallFormat> tool_call_format(std::string_view name) {
  return format_named(name, kToolCallNames);
}

Result<ReasoningFormat> reasoning_format(std::string_view name) {
  return format_named(name, kReasoningNames);
}

std::string_view to_string(ToolCallFormat format) {
  return format == ToolCallFormat::kJson ? "json" : name_of_format(format, kToolCallNames);
}

std::string_view to_string(ReasoningFormat format) {
  return name_of_format(format, kReasoningNames);
}

// Specific marks are tested first, because several formats share <tool_call>.
ToolCallFormat detect_tool_call_format(std::string_view chat_template) {
  const auto says = [chat_template](std::string_view mark) { return has(chat_template, mark); };
  if (says("<|channel|>") && says("<|message|>")) return ToolCallFormat::kHarmony;
  if (says("<|tool_calls_section_begin|>")) return ToolCallFormat::kKimiK2;
  if (says("｜DSML｜")) return ToolCallFormat::kDeepseekV32;
  if (says("<｜tool▁calls▁begin｜>")) return ToolCallFormat::kDeepseekV3;
  if (says("[TOOL_CALLS]")) return ToolCallFormat::kMistral;
  if (says("<|tool_call>call:")) return ToolCallFormat::kGemma4;
  if (says("<minimax:tool_call>")) return ToolCallFormat::kMinimaxM2;
  if (says("<seed:tool_call>")) return ToolCallFormat::kSeedOss;
  if (says("<|tool_call_start|>")) return ToolCallFormat::kLfm2;
  if (says("<|START_ACTION|>")) return ToolCallFormat::kCohere;
  if (says("<TOOLCALL>")) return ToolCallFormat::kNemotronV2;
  if (says("<|tool_call|>")) return ToolCallFormat::kGranite;
  if (says("<tool_call>")) {
    if (says("<arg_key>")) return ToolCallFormat::kGlm;
    return says("<function=") ? ToolCallFormat::kQwen3Coder : ToolCallFormat::kQwen;
  }
  if (says("<|start_header_id|>") && says("{\"name\": function name, \"parameters\"")) {
    return ToolCallFormat::kLlama3;
  }
  if (says("[func_name1(params_name1=")) return ToolCallFormat::kPythonic;
  return ToolCallFormat::kNone;
}

ReasoningFormat detect_reasoning_format(std::string_view chat_template) {
  const auto says = [chat_template](std::string_view mark) { return has(chat_template, mark); };
  if (says("<|channel|>") && says("<|message|>")) return ReasoningFormat::kHarmony;
  if (says("◁/think▷")) return ReasoningFormat::kKimi;
  if (says("[/THINK]")) return ReasoningFormat::kMistral;
  if (says("<|channel>") && says("<channel|>")) return ReasoningFormat::kGemma;
  if (says("</seed:think>")) return ReasoningFormat::kSeed;
  if (says("<|END_THINKING|>")) return ReasoningFormat::kCohere;
  if (says("</think>") && says("<response>")) return ReasoningFormat::kGranite;
  return says("</think>") ? ReasoningFormat::kThink : ReasoningFormat::kNone;
}

ReasoningTags tags_of(ReasoningFormat format) {
  switch (format) {
    case ReasoningFormat::kThink:
    case ReasoningFormat::kThinkFromStart:
    case ReasoningFormat::kGranite:
      return {.open = "<think>", .close = "</think>"};
    case ReasoningFormat::kKimi:
      return {.open = "◁think▷", .close = "◁/think▷"};
    case ReasoningFormat::kMistral:
      return {.open = "[THINK]", .close = "[/THINK]"};
    case ReasoningFormat::kGemma:
      return {.open = "<|channel>", .close = "<channel|>", .label = "thought"};
    case ReasoningFormat::kSeed:
      return {.open = "<seed:think>", .close = "</seed:think>"};
    case ReasoningFormat::kCohere:
      return {.open = "<|START_THINKING|>", .close = "<|END_THINKING|>"};
    case ReasoningFormat::kNone:
    case ReasoningFormat::kHarmony:
      break;
  }
  return {};
}

ContentMarks content_marks_of(ReasoningFormat format) {
  static constexpr std::string_view kCohereMarks[] = {"<|START_RESPONSE|>", "<|END_RESPONSE|>",
                                                      "<|START_TEXT|>", "<|END_TEXT|>"};
  if (format == ReasoningFormat::kCohere) return {.special = kCohereMarks};
  if (format == ReasoningFormat::kGranite) return {.open = "<response>", .close = "</response>"};
  return {};
}

bool starts_in_reasoning(ReasoningFormat format, std::string_view prompt,
                         std::string_view unfinished) {
  const ReasoningTags tags = tags_of(format);
  if (tags.open.empty() || reasoning_is_closed(format, prompt, unfinished)) return false;
  return has(unfinished, tags.open) || without_space_after(prompt).ends_with(tags.open) ||
         format == ReasoningFormat::kThinkFromStart;
}

bool reasoning_is_closed(ReasoningFormat format, std::string_view prompt,
                         std::string_view unfinished) {
  const ReasoningTags tags = tags_of(format);
  if (tags.open.empty()) return false;
  const size_t open = unfinished.rfind(tags.open);
  const size_t close = unfinished.rfind(tags.close);
  if (close != std::string_view::npos) return open == std::string_view::npos || open < close;
  return open == std::string_view::npos && without_space_after(prompt).ends_with(tags.close);
}

bool needs_special_tokens(ToolCallFormat format) {
  return format == ToolCallFormat::kLlama3 || format == ToolCallFormat::kMistral ||
         format == ToolCallFormat::kHarmony || format == ToolCallFormat::kPythonic ||
         format == ToolCallFormat::kGemma4 || format == ToolCallFormat::kSeedOss ||
         format == ToolCallFormat::kLfm2 || format == ToolCallFormat::kGranite ||
         format == ToolCallFormat::kCohere;
}

bool needs_special_tokens(ReasoningFormat format) {
  return format == ReasoningFormat::kMistral || format == ReasoningFormat::kHarmony ||
         format == ReasoningFormat::kGemma || format == ReasoningFormat::kSeed ||
         format == ReasoningFormat::kCohere;
}

}  // namespace heddle::parsers
