// SPDX-License-Identifier: Apache-2.0
// Gemma 3: norms before and after attention and MLP, five sliding layers for each full one with
// rotary settings of their own, and a GELU in place of SiLU. Gemma team, "Gemma 3 Technical
// Report", arXiv:2503.19786.
//
// Checkpoints with a vision tower are served as text models: the tower is ignored.
#include <cmath>

#include "models/layers/decoder.h"
#include "models/layers/gemma.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

struct Gemma3Config {
  double score_width = 256;  // query_pre_attn_scalar: scores are divided by its root
  double logit_softcap = 0;

  bool operator==(const Gemma3Config&) const = default;
};

void read_gemma3_config(ConfigReader& reader, ModelConfig& config) {
  require_gelu(reader);
  config.attention_bias = reader.boolean("attention_bias", false);
  config.head_dim = reader.integer("head_dim", 256, checkpoint::kHeadDim);
  config.rope.theta = 1e6;
  config.sliding_rope = checkpoint::RopeConfig{.theta = 1e4};
  checkpoint::read_periodic_windows(reader, config, 6, 4096);
  config.own.set(
      Gemma3Config{.score_width = reader.number("query_pre_attn_scalar", 256.0, {1e-6, 1e6}),
                   .logit_softcap = reader.number("final_logit_softcapping", 0.0, {0, 1e6})});
}

std::unique_ptr<const Model> create_gemma3(const ModelConfig& config) {
  const auto& own = config.own.get<Gemma3Config>();
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kHeads;
  attention.qk_norm_offset = 1;
  attention.softmax_scale = 1 / std::sqrt(own.score_width);
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  DecoderOptions options{.norm_offset = 1,
                         .embedding_scale = gemma_embedding_scale(config),
                         .logit_softcap = own.logit_softcap};
  use_vision_names(config, options);
  return make_decoder(config, std::move(options),
                      transformer_layers(config, attention,
                                         {.frame = Frame::kSandwich,
                                          .mlp = {.activation = GatedActivation::kGelu}}));
}

// The larger models' files leave out what has its usual value.
checkpoint::SharedKeys gemma3_keys(ConfigReader& reader) {
  checkpoint::SharedKeys keys = gemma_keys(reader);
  keys.default_vocab_size = 262208;
  keys.default_num_heads = 8;
  keys.default_num_kv_heads = 4;
  keys.default_max_positions = 131072;
  return keys;
}

}  // namespace

Family gemma3() {
  return {.name = "Gemma 3",
          .architectures = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
          .model_types = {{"gemma3_text", "Gemma3ForCausalLM"},
                          {"gemma3", "Gemma3ForConditionalGeneration"}},
          .shared_keys = gemma3_keys,
          .read_config = read_gemma3_config,
          .create = create_gemma3};
}

}  // namespace heddle::models
