// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE: the attention of Qwen3 and a mixture of experts in place of the MLP, without a shared
// expert. "Qwen3 Technical Report", arXiv:2505.09388.
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_qwen3_moe_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", false);
  require_qk_norm(reader, config);
  const std::string_view count = reader.spelling("num_experts", "num_local_experts");
  read_stepped_experts(
      reader, config,
      {.count = {count}, .per_token = {"num_experts_per_tok"}, .width = {"moe_intermediate_size"}});
  if (config.moe) config.moe->normalize_top_k = reader.boolean("norm_topk_prob", false);
}

std::unique_ptr<const Model> create_qwen3_moe(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kHeads;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  return make_decoder(config, {}, transformer_layers(config, attention));
}

}  // namespace

Family qwen3_moe() {
  return {.name = "Qwen3-MoE",
          .architectures = {"Qwen3MoeForCausalLM"},
          .model_types = {{"qwen3_moe", "Qwen3MoeForCausalLM"}},
          .read_config = read_qwen3_moe_config,
          .create = create_qwen3_moe};
}

}  // namespace heddle::models
