// SPDX-License-Identifier: Apache-2.0
// Mistral 4: the latent attention of DeepSeek-V3 with queries that are scaled by their positions,
// and experts that are chosen by a softmax beside a shared one.
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/layers/latent_attention.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

// The file's partial_rotary_factor counts from the whole head; of qk_rope_head_dim, the width that
// is rotated here, every channel turns.
void read_mistral4_rotation(ConfigReader& reader, ModelConfig& config) {
  config.rope =
      checkpoint::read_rope_configs(reader, {}, /*slides=*/false, config.max_position_embeddings)
          .rope;
  config.rope.partial_rotary_factor = 1;
}

void read_mistral4_config(ConfigReader& reader, ModelConfig& config) {
  read_latent_attention(reader, config);
  read_mistral4_rotation(reader, config);
  read_first_dense_layers(reader, config, /*default_dense=*/0);
  if (config.num_moe_layers() == 0) return;
  config.moe = read_experts(reader, {.count = {"n_routed_experts"},
                                     .per_token = {"num_experts_per_tok"},
                                     .width = {"moe_intermediate_size"}});
  read_shared_experts(reader, "n_shared_experts", *config.moe);
  config.moe->router = {.scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6})};
  config.moe->normalize_top_k = reader.boolean("norm_topk_prob", true);
}

std::unique_ptr<const Model> create_mistral4(const ModelConfig& config) {
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    layers.push_back(
        pre_norm_layer(std::make_unique<LatentAttention>(config), make_feed_forward(config, i)));
  }
  return make_decoder(config, {}, std::move(layers));
}

checkpoint::SharedKeys mistral4_keys(ConfigReader& /*reader*/) { return {.reads_rope = true}; }

}  // namespace

Family mistral4() {
  return {.name = "Mistral-4",
          .architectures = {"Mistral4ForCausalLM"},
          .model_types = {{"mistral4", "Mistral4ForCausalLM"}},
          .shared_keys = mistral4_keys,
          .read_config = read_mistral4_config,
          .create = create_mistral4};
}

}  // namespace heddle::models
