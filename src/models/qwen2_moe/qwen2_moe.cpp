// SPDX-License-Identifier: Apache-2.0
// Qwen2-MoE: the attention of Qwen2 and, instead of the MLP, a mixture of experts with a gated
// shared expert. "Qwen2 Technical Report", arXiv:2407.10671, section 2.2.2.
//
// The weights of the chosen experts are parts of the softmax over all experts: published models do
// not renormalise them.
#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_qwen2_moe_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  checkpoint::read_late_windows(reader, config);
  config.attention_bias = reader.boolean("qkv_bias", true);
  read_stepped_experts(reader, config,
                       {.count = {"num_experts"},
                        .per_token = {"num_experts_per_tok"},
                        .width = {"moe_intermediate_size"}});
  if (!config.moe) return;
  config.moe->normalize_top_k = reader.boolean("norm_topk_prob", false);
  config.moe->shared_intermediate_size =
      reader.integer("shared_expert_intermediate_size", std::nullopt, checkpoint::kWidth);
  config.moe->gated_shared_expert = true;
}

std::unique_ptr<const Model> create_qwen2_moe(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = config.attention_bias;
  return make_decoder(config, {}, transformer_layers(config, attention));
}

void translate_qwen2_moe(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "Qwen2MoeForCausalLM"});
  translate_experts(gguf);
  translate_shared_expert(gguf);
}

}  // namespace

Family qwen2_moe() {
  return {.name = "Qwen2-MoE",
          .architectures = {"Qwen2MoeForCausalLM"},
          .model_types = {{"qwen2_moe", "Qwen2MoeForCausalLM"}},
          .read_config = read_qwen2_moe_config,
          .create = create_qwen2_moe,
          .gguf = {{"qwen2moe", translate_qwen2_moe}}};
}

}  // namespace heddle::models
