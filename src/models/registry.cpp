// SPDX-License-Identifier: Apache-2.0
#include "models/registry.h"

#include <array>

#include "models/deepseek/deepseek.h"
#include "models/gpt_oss/gpt_oss.h"
#include "models/kimi_linear/kimi_linear.h"
#include "models/llama/llama.h"
#include "models/mistral/mistral.h"
#include "models/qwen2/qwen2.h"
#include "models/qwen3/qwen3.h"
#include "models/qwen3_5/qwen3_5.h"
#include "models/qwen3_moe/qwen3_moe.h"
#include "models/qwen3_next/qwen3_next.h"

namespace heddle::models {

namespace {

using Factory = Result<std::unique_ptr<const Model>> (*)(const checkpoint::ModelConfig&);

struct Family {
  std::string_view architecture;
  Factory create;
};

constexpr std::array kFamilies = {
    Family{"DeepseekV2ForCausalLM", create_deepseek},
    Family{"DeepseekV3ForCausalLM", create_deepseek},
    Family{"GptOssForCausalLM", create_gpt_oss},
    Family{"KimiLinearForCausalLM", create_kimi_linear},
    Family{"LlamaForCausalLM", create_llama},
    Family{"MistralForCausalLM", create_mistral},
    Family{"Qwen2ForCausalLM", create_qwen2},
    Family{"Qwen3ForCausalLM", create_qwen3},
    Family{"Qwen3MoeForCausalLM", create_qwen3_moe},
    Family{"Qwen3NextForCausalLM", create_qwen3_next},
    Family{"Qwen3_5ForCausalLM", create_qwen3_5},
    Family{"Qwen3_5ForConditionalGeneration", create_qwen3_5},
    Family{"Qwen3_5MoeForCausalLM", create_qwen3_5},
    Family{"Qwen3_5MoeForConditionalGeneration", create_qwen3_5},
};

constexpr auto kArchitectures = [] {
  std::array<std::string_view, kFamilies.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kFamilies[i].architecture;
  return names;
}();

}  // namespace

std::span<const std::string_view> served_architectures() { return kArchitectures; }

Result<std::unique_ptr<const Model>> create_model(const checkpoint::ModelConfig& config) {
  for (const Family& family : kFamilies) {
    if (family.architecture == config.architecture) return family.create(config);
  }
  return checkpoint::check_served({config.architecture, config.model_type}, served_architectures());
}

}  // namespace heddle::models
