// SPDX-License-Identifier: Apache-2.0
// Phi-3.5-MoE: Llama with layer norms, biases and a sparsemixer router, which chooses two experts
// and computes each weight only among experts with similar logits (ops/moe/moe_route.h). Abdin et
// al., "Phi-3 Technical Report", arXiv:2404.14219.
//
// Only the short table of longrope is served: implementations disagree about texts beyond the
// original context.
#include <fmt/format.h>

#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/layers/longrope.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

constexpr ConfigReader::NumberRange kFactors{1e-9, 1e12};

void read_short_rope(ConfigReader& reader, ModelConfig& config) {
  config.rope = read_longrope(reader, config);
  ConfigReader scaling = rope_scaling_of(reader);
  const double factor = config.rope.attention_factor.value_or(1);
  config.rope.attention_factor = scaling.number("short_mscale", factor, kFactors);
  (void)scaling.number("long_mscale", factor, kFactors);
  if (config.rope.long_divisors.empty()) return;
  config.rope.long_divisors.clear();
  const int64_t original = config.rope.original_max_position_embeddings;
  reader.note(fmt::format(
      "config.json: beyond original_max_position_embeddings longrope is not served with this "
      "family: the longest context is {}, not {}",
      original, config.max_position_embeddings));
  config.max_position_embeddings = original;
}

void read_phimoe_config(ConfigReader& reader, ModelConfig& config) {
  checkpoint::read_windows_everywhere(reader, config);
  config.attention_bias = reader.boolean("attention_bias", false);
  config.own.set(reader.boolean("lm_head_bias", false));
  if (config.tie_word_embeddings && config.own.get<bool>()) {
    reader.refuse("lm_head_bias", "a head that is the embedding is served without it");
  }
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), true);
  config.moe = read_experts(reader, {.count = {"num_local_experts", 16},
                                     .per_token = {"num_experts_per_tok", 2},
                                     .width = {"intermediate_size"}});
  if (config.moe->num_experts_per_token != 2) {
    reader.refuse("num_experts_per_tok", "a sparsemixer chooses 2");
  }
  config.moe->normalize_top_k = false;
  config.moe->router =
      checkpoint::RouterConfig{.nearness = 2 * reader.number("router_jitter_noise", 0.01, {0, 1})};
  if (has_longrope(reader)) read_short_rope(reader, config);
}

checkpoint::SharedKeys phimoe_keys(ConfigReader& reader) {
  return {.default_norm_epsilon = 1e-5, .reads_rope = has_longrope(reader)};
}

std::unique_ptr<const Model> create_phimoe(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  return make_decoder(config,
                      {.norm_kind = NormKind::kLayerBias, .head_bias = config.own.get<bool>()},
                      transformer_layers(config, attention, {.moe_scope = "block_sparse_moe."}));
}

}  // namespace

Family phimoe() {
  return {.name = "PhiMoE",
          .architectures = {"PhimoeForCausalLM", "PhiMoEForCausalLM"},
          .model_types = {{"phimoe", "PhimoeForCausalLM"}},
          .shared_keys = phimoe_keys,
          .read_config = read_phimoe_config,
          .create = create_phimoe};
}

}  // namespace heddle::models
