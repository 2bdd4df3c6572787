// SPDX-License-Identifier: Apache-2.0
#include "models/layers/latent_config.h"

#include "checkpoint/config_ranges.h"

namespace heddle::models {

void read_latent_attention(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  using checkpoint::kHeadDim;
  checkpoint::LatentAttentionConfig latent;
  if (reader.has("q_lora_rank")) {
    latent.q_lora_rank = reader.integer("q_lora_rank", std::nullopt, checkpoint::kWidth);
  }
  latent.kv_lora_rank = reader.integer("kv_lora_rank", std::nullopt, {1, 8192});
  latent.qk_nope_head_dim = reader.integer("qk_nope_head_dim", std::nullopt, kHeadDim);
  latent.qk_rope_head_dim = reader.integer("qk_rope_head_dim", std::nullopt, kHeadDim);
  latent.v_head_dim = reader.integer("v_head_dim", std::nullopt, kHeadDim);
  latent.rope_interleave = reader.boolean("rope_interleave", true);
  config.latent_attention = latent;
  config.head_dim = latent.qk_rope_head_dim;
}

}  // namespace heddle::models
