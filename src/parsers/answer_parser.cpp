// SPDX-License-Identifier: Apache-2.0
#include "parsers/answer_parser.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parsers/gemma_calls.h"
#include "parsers/harmony_parser.h"
#include "parsers/json_calls.h"
#include "parsers/pythonic_calls.h"
#include "parsers/tagged_calls.h"
#include "parsers/thinking_parser.h"
#include "parsers/tool_names.h"

namespace heddle::parsers {
namespace {

// Fowler, Noll and Vo, FNV-1a, and the finalizer of Steele, Lea and Flood's SplitMix64.
uint64_t hash(std::string_view text, uint64_t salt) {
  uint64_t value = 0xcbf29ce484222325u ^ salt;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace

std::unique_ptr<ToolCallParser> make_tool_call_parser(const AnswerParserOptions& options) {
  if (options.tools == nullptr || options.tools->empty()) return nullptr;
  ToolCallParserOptions common{
      .make_id = [format = options.tool_calls, seed = options.id_seed](
                     std::string_view name,
                     size_t index) { return make_call_id(format, seed, name, index); },
      .names = std::make_shared<const ToolNames>(options.tools),
      .parallel = options.parallel_tool_calls,
      .is_exact = options.is_held_to_form,
      .keep_call_text = options.keep_call_text};
  const auto json = [&common](JsonCallFormat format) {
    return std::make_unique<JsonCallParser>(format, std::move(common));
  };
  const auto tagged = [&common, &options](TaggedCallFormat format) {
    return std::make_unique<TaggedCallParser>(format, options.tools, std::move(common));
  };
  const auto pythonic = [&common](PythonicCallFormat format) {
    return std::make_unique<PythonicCallParser>(format, std::move(common));
  };
  switch (options.tool_calls) {
    case ToolCallFormat::kQwen:
      return json(JsonCallFormat::kQwen);
    case ToolCallFormat::kQwen3Coder:
      return tagged(TaggedCallFormat::kQwen3Coder);
    case ToolCallFormat::kDeepseekV3:
      return json(JsonCallFormat::kDeepseek);
    case ToolCallFormat::kDeepseekV32:
      return tagged(TaggedCallFormat::kDeepseekV32);
    case ToolCallFormat::kGlm:
      return tagged(TaggedCallFormat::kGlm);
    case ToolCallFormat::kLlama3:
    case ToolCallFormat::kJson:
      return json(JsonCallFormat::kLlama3);
    case ToolCallFormat::kMistral:
      return json(JsonCallFormat::kMistral);
    case ToolCallFormat::kPythonic:
      return pythonic(PythonicCallFormat::kLlama4);
    case ToolCallFormat::kLfm2:
      return pythonic(PythonicCallFormat::kLfm2);
    case ToolCallFormat::kKimiK2:
      return json(JsonCallFormat::kKimi);
    case ToolCallFormat::kGemma4:
      return std::make_unique<GemmaCallParser>(std::move(common));
    case ToolCallFormat::kMinimaxM2:
      return tagged(TaggedCallFormat::kMinimax);
    case ToolCallFormat::kSeedOss:
      return tagged(TaggedCallFormat::kSeed);
    case ToolCallFormat::kGranite:
      return json(JsonCallFormat::kGranite);
    case ToolCallFormat::kNemotronV2:
      return json(JsonCallFormat::kNemotron);
    case ToolCallFormat::kCohere:
      return json(JsonCallFormat::kCohere);
    case ToolCallFormat::kNone:
    case ToolCallFormat::kHarmony:
      break;
  }
  return nullptr;
}

std::unique_ptr<AnswerParser> make_answer_parser(AnswerParserOptions options) {
  const bool reads_calls = options.tool_calls == ToolCallFormat::kHarmony;
  if (options.reasoning == ReasoningFormat::kHarmony || reads_calls) {
    return std::make_unique<HarmonyParser>(std::move(options));
  }
  auto calls = make_tool_call_parser(options);
  return std::make_unique<ThinkingParser>(options, std::move(calls));
}

std::string make_call_id(ToolCallFormat format, std::string_view seed, std::string_view name,
                         size_t index) {
  const uint64_t high = hash(seed, 2 * index);
  const uint64_t low = hash(seed, 2 * index + 1);
  if (format == ToolCallFormat::kKimiK2) return fmt::format("functions.{}:{}", name, index);
  if (format != ToolCallFormat::kMistral) {
    return fmt::format("call_{:016x}{:08x}", high, static_cast<uint32_t>(low));
  }
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::string id;
  for (uint64_t bits = high; id.size() < 9; bits /= kLetters.size()) {
    id += kLetters[bits % kLetters.size()];
  }
  return id;
}

}  // namespace heddle::parsers
