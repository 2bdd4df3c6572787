// SPDX-License-Identifier: Apache-2.0
// Gemma 3: norms before and after attention and MLP, five sliding layers for each full one with
// rotary settings of their own, and a GELU in place of SiLU. Gemma team, "Gemma 3 Technical
// Report", arXiv:2503.19786.
//
// Checkpoints with a vision tower are served as text models: the tower is ignored.
#include <cmath>

#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/gemma.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

struct Gemma3Config {
  double score_width = 256;  // query_pre_attn_scalar: scores are divided by its square root
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

// The files of the larger models omit keys that have the usual value.
checkpoint::SharedKeys gemma3_keys(ConfigReader& reader) {
  checkpoint::SharedKeys keys = gemma_keys(reader);
  keys.default_vocab_size = 262208;
  keys.default_num_heads = 8;
  keys.default_num_kv_heads = 4;
  keys.default_max_positions = 131072;
  return keys;
}

// GGUF metadata omits the values that all published Gemma 3 models share.
void translate_gemma3(GgufTranslation& gguf) {
  constexpr auto kOneAdded = checkpoint::GgufChange::kOneAdded;
  translate_transformer(
      gguf,
      {.architecture = "Gemma3ForCausalLM", .norms = kOneAdded, .mlp_norm = "post_attention_norm"});
  gguf.in_layers({
      {.stored = "ffn_norm", .hub = "pre_feedforward_layernorm", .change = kOneAdded},
      {.stored = "post_ffw_norm", .hub = "post_feedforward_layernorm", .change = kOneAdded},
  });
  gguf.set("hidden_activation", "gelu_pytorch_tanh");
  gguf.set("torch_dtype", "bfloat16");
  const int64_t num_layers = gguf.required("block_count");
  const int64_t width = gguf.required("embedding_length");
  const int64_t num_heads = std::max<int64_t>(gguf.required("attention.head_count"), 1);
  const int64_t head_dim = gguf.required("attention.key_length");
  constexpr int64_t kLayersOf27B = 62;  // the only model whose scores are not divided by
                                        // sqrt(head_dim)
  gguf.set("query_pre_attn_scalar", num_layers == kLayersOf27B ? width / num_heads : head_dim);
  gguf.set("sliding_window", gguf.required("attention.sliding_window"));
  gguf.set("rope_local_base_freq", gguf.number("rope.freq_base_swa").value_or(1e4));
  gguf.set("sliding_window_pattern", gguf.integer("attention.sliding_window_pattern").value_or(6));
  gguf.copy_number("final_logit_softcapping", "final_logit_softcapping");
}

}  // namespace

Family gemma3() {
  return {.name = "Gemma 3",
          .architectures = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
          .model_types = {{"gemma3_text", "Gemma3ForCausalLM"},
                          {"gemma3", "Gemma3ForConditionalGeneration"}},
          .shared_keys = gemma3_keys,
          .read_config = read_gemma3_config,
          .create = create_gemma3,
          .gguf = {{"gemma3", translate_gemma3}}};
}

}  // namespace heddle::models
