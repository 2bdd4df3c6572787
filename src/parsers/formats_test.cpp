// SPDX-License-Identifier: Apache-2.0
#include "parsers/formats.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_data.h"

namespace heddle::parsers {
namespace {

using enum ToolCallFormat;

TEST(FormatsTest, FormatsHaveTheNamesOfOptions) {
  for (const char* const name :
       {"none", "qwen", "qwen3_coder", "deepseekv3", "deepseekv32", "glm", "llama3", "mistral",
        "pythonic", "kimi_k2", "gpt-oss", "gemma4", "minimax_m2", "seed_oss", "lfm2", "granite",
        "nemotron_v2", "cohere"}) {
    const auto format = tool_call_format(name);
    ASSERT_TRUE(format.ok()) << name;
    EXPECT_EQ(to_string(*format), name);
  }
  EXPECT_EQ(tool_call_format("hermes").value(), kQwen);
  for (const char* const name : {"none", "qwen3", "qwen3-thinking", "kimi", "mistral", "gpt-oss",
                                 "gemma4", "seed_oss", "cohere", "granite"}) {
    const auto format = reasoning_format(name);
    ASSERT_TRUE(format.ok()) << name;
    EXPECT_EQ(to_string(*format), name);
  }
  EXPECT_EQ(reasoning_format("deepseek-r1").value(), ReasoningFormat::kThinkFromStart);
  EXPECT_THAT(tool_call_format("qwem").status().message(),
              ::testing::HasSubstr("no format \"qwem\"; there are none, qwen, "));
}

TEST(FormatsTest, APromptsEndSaysWhetherReasoningHasBegun) {
  EXPECT_TRUE(starts_in_reasoning(ReasoningFormat::kThink, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(starts_in_reasoning(ReasoningFormat::kThink,
                                   "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(starts_in_reasoning(ReasoningFormat::kThink, "<|im_start|>assistant\n"));
  EXPECT_FALSE(starts_in_reasoning(ReasoningFormat::kThink, "user: what is <think>?|assistant:"));
  EXPECT_TRUE(starts_in_reasoning(ReasoningFormat::kThinkFromStart, "<｜Assistant｜>"));
  EXPECT_FALSE(starts_in_reasoning(ReasoningFormat::kThinkFromStart, "<｜Assistant｜></think>"));
  EXPECT_FALSE(starts_in_reasoning(ReasoningFormat::kNone, "<think>"));
  EXPECT_FALSE(starts_in_reasoning(ReasoningFormat::kThink, " \n"));
  EXPECT_TRUE(starts_in_reasoning(ReasoningFormat::kThink, "assistant:", "<think>I"));
  EXPECT_FALSE(starts_in_reasoning(ReasoningFormat::kThink, "<think>", "I</think>So"));
  EXPECT_FALSE(starts_in_reasoning(ReasoningFormat::kGemma, "<|turn>model\n"));
  EXPECT_FALSE(
      starts_in_reasoning(ReasoningFormat::kGemma, "model\n<|channel>thought\n<channel|>"));
  EXPECT_TRUE(starts_in_reasoning(ReasoningFormat::kCohere, "<|CHATBOT_TOKEN|><|START_THINKING|>"));
  EXPECT_FALSE(starts_in_reasoning(ReasoningFormat::kCohere, "<|START_THINKING|><|END_THINKING|>"));
}

TEST(FormatsTest, APromptsEndSaysWhetherReasoningIsOver) {
  EXPECT_TRUE(reasoning_is_closed(ReasoningFormat::kThink, "assistant\n<think>\n\n</think>\n\n"));
  EXPECT_TRUE(reasoning_is_closed(ReasoningFormat::kThinkFromStart, "<｜Assistant｜></think>"));
  EXPECT_FALSE(reasoning_is_closed(ReasoningFormat::kThink, "<|im_start|>assistant\n"));
  EXPECT_FALSE(reasoning_is_closed(ReasoningFormat::kThink, "assistant\n<think>\n"));
  EXPECT_FALSE(reasoning_is_closed(ReasoningFormat::kThink, "</think> is a tag|assistant:"));
  EXPECT_TRUE(reasoning_is_closed(ReasoningFormat::kThink, "<think>", "I</think>So"));
  EXPECT_FALSE(reasoning_is_closed(ReasoningFormat::kThink, "</think>", "<think>Again"));
  EXPECT_FALSE(reasoning_is_closed(ReasoningFormat::kNone, "</think>"));
}

// No file of the data set is MiniMax's.
TEST(FormatsTest, MarksInATemplateShowTheirFormat) {
  EXPECT_EQ(detect_tool_call_format("{{ '<minimax:tool_call>' }}<think></think>"), kMinimaxM2);
  EXPECT_EQ(detect_tool_call_format("{{ '<|tool_call_start|>[' }}"), kLfm2);
  EXPECT_EQ(detect_reasoning_format("<minimax:tool_call><think></think>"), ReasoningFormat::kThink);
}

// Templates of real models, by their files in the developers' data set.
TEST(FormatsTest, RealTemplatesShowTheirFormats) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/chat_templates");

  struct Case {
    const char* file;
    ToolCallFormat calls;
    ReasoningFormat reasoning;
  };

  const Case cases[] = {
      {"hf/Qwen2.5-7B-Instruct", kQwen, ReasoningFormat::kNone},
      {"hf/Qwen3-30B-A3B", kQwen, ReasoningFormat::kThink},
      {"hf/Qwen3-30B-A3B-Thinking-2507", kQwen, ReasoningFormat::kThink},
      {"hf/Qwen3-Next-80B-A3B-Instruct.reconstructed", kQwen, ReasoningFormat::kNone},
      {"hf/Qwen3-Coder-30B-A3B-Instruct", kQwen3Coder, ReasoningFormat::kNone},
      {"hf/Qwen3-Coder-480B-A35B-Instruct", kQwen3Coder, ReasoningFormat::kNone},
      {"hf/Qwen3.5-4B", kQwen3Coder, ReasoningFormat::kThink},
      {"hf/DeepSeek-V3", kDeepseekV3, ReasoningFormat::kThink},
      {"hf/DeepSeek-R1", kDeepseekV3, ReasoningFormat::kThink},
      {"hf/DeepSeek-R1-Distill-Qwen-14B", kDeepseekV3, ReasoningFormat::kThink},
      {"hf/DeepSeek-V3.1", kDeepseekV3, ReasoningFormat::kThink},
      {"llama.cpp/deepseek-ai-DeepSeek-V3.2", kDeepseekV32, ReasoningFormat::kThink},
      {"hf/GLM-4.5", kGlm, ReasoningFormat::kThink},
      {"llama.cpp/GLM-4.6", kGlm, ReasoningFormat::kThink},
      {"llama.cpp/GLM-4.7-Flash", kGlm, ReasoningFormat::kThink},
      {"hf/Llama-3.1-8B-Instruct", kLlama3, ReasoningFormat::kNone},
      {"hf/Llama-3.2-11B-Vision-Instruct", kLlama3, ReasoningFormat::kNone},
      {"llama.cpp/meta-llama-Llama-3.3-70B-Instruct", kLlama3, ReasoningFormat::kNone},
      {"hf/Mistral-7B-Instruct-v0.3", kMistral, ReasoningFormat::kNone},
      {"hf/Mistral-Nemo-Instruct-2407", kMistral, ReasoningFormat::kNone},
      {"llama.cpp/Mistral-Small-3.2-24B-Instruct-2506", kMistral, ReasoningFormat::kNone},
      {"llama.cpp/mistralai-Ministral-3-14B-Reasoning-2512", kMistral, ReasoningFormat::kMistral},
      {"llama.cpp/Kimi-K2-Instruct", kKimiK2, ReasoningFormat::kNone},
      {"llama.cpp/Kimi-K2-Thinking", kKimiK2, ReasoningFormat::kThink},
      {"llama.cpp/openai-gpt-oss-120b", ToolCallFormat::kHarmony, ReasoningFormat::kHarmony},
      {"llama.cpp/NousResearch-Hermes-3-Llama-3.1-8B-tool_use", kQwen, ReasoningFormat::kNone},
      {"llama.cpp/google-gemma-2-2b-it", ToolCallFormat::kNone, ReasoningFormat::kNone},
      {"llama.cpp/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", kQwen3Coder, ReasoningFormat::kThink},
      {"llama.cpp/stepfun-ai-Step-3.5-Flash", kQwen3Coder, ReasoningFormat::kThink},
      {"llama.cpp/StepFun3.5-Flash", kQwen3Coder, ReasoningFormat::kThink},
      {"llama.cpp/Qwen3.5-4B", kQwen3Coder, ReasoningFormat::kThink},
      {"llama.cpp/GLM-5.2", kGlm, ReasoningFormat::kThink},
      {"llama.cpp/deepseek-ai-DeepSeek-V4", kDeepseekV32, ReasoningFormat::kThink},
      {"llama.cpp/Bielik-11B-v3.0-Instruct", kQwen, ReasoningFormat::kThink},
      {"llama.cpp/MiMo-VL", kQwen, ReasoningFormat::kNone},
      {"mistral.rs/smollm3", kQwen, ReasoningFormat::kThink},
      {"llama.cpp/google-gemma-4-31B-it", kGemma4, ReasoningFormat::kGemma},
      {"llama.cpp/google-gemma-4-31B-it-interleaved", kGemma4, ReasoningFormat::kGemma},
      {"llama.cpp/ByteDance-Seed-OSS", kSeedOss, ReasoningFormat::kSeed},
      {"llama.cpp/ibm-granite-granite-3.3-2B-Instruct", kGranite, ReasoningFormat::kGranite},
      {"chujiezheng/granite-3.0-instruct", kGranite, ReasoningFormat::kNone},
      {"llama.cpp/NVIDIA-Nemotron-Nano-v2", kNemotronV2, ReasoningFormat::kThink},
      {"llama.cpp/CohereForAI-c4ai-command-r7b-12-2024-tool_use", kCohere,
       ReasoningFormat::kCohere},
      {"llama.cpp/Cohere2MoE", kCohere, ReasoningFormat::kCohere},
      // They show no mark of a call.
      {"llama.cpp/LFM2-8B-A1B", ToolCallFormat::kNone, ReasoningFormat::kNone},
      {"llama.cpp/LFM2.5-Instruct", ToolCallFormat::kNone, ReasoningFormat::kThink},
      {"chujiezheng/gemma-it", ToolCallFormat::kNone, ReasoningFormat::kNone},
      {"chujiezheng/chatml", ToolCallFormat::kNone, ReasoningFormat::kNone},
  };
  for (const Case& one : cases) {
    std::ifstream file(folder / (std::string(one.file) + ".jinja"));
    const std::string source((std::istreambuf_iterator<char>(file)),
                             std::istreambuf_iterator<char>());
    EXPECT_FALSE(source.empty()) << one.file;
    EXPECT_EQ(to_string(detect_tool_call_format(source)), to_string(one.calls)) << one.file;
    EXPECT_EQ(to_string(detect_reasoning_format(source)), to_string(one.reasoning)) << one.file;
  }
}

}  // namespace
}  // namespace heddle::parsers
