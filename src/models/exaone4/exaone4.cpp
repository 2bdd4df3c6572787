// SPDX-License-Identifier: Apache-2.0
// EXAONE 4: norms after attention and MLP instead of before. In models with sliding layers, the
// full-attention layers do not rotate. LG AI Research, "EXAONE 4.0", arXiv:2507.11407.
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::LayerKind;

void read_exaone4_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  checkpoint::read_periodic_windows(reader, config, 4);
}

std::unique_ptr<const Model> create_exaone4(const checkpoint::ModelConfig& config) {
  AttentionOptions options = attention_options(config);
  options.qk_norm = QkNorm::kHeads;
  const bool some_slide = config.num_layers_of(LayerKind::kSlidingAttention) > 0;
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    AttentionOptions attention = in_layer(options, config, i);
    if (some_slide && attention.window == 0) attention.rope_table.reset();
    layers.push_back(transformer_layer(config, attention, {.frame = Frame::kPost}, i));
  }
  return make_decoder(config, {}, std::move(layers));
}

void translate_exaone4(GgufTranslation& gguf) {
  translate_transformer(gguf,
                        {.architecture = "Exaone4ForCausalLM", .mlp_norm = "post_attention_norm"});
  gguf.in_layers({{.stored = "post_ffw_norm", .hub = "post_feedforward_layernorm"}});
  translate_windows(gguf, 4);
}

}  // namespace

Family exaone4() {
  return {.name = "EXAONE 4",
          .architectures = {"Exaone4ForCausalLM"},
          .model_types = {{"exaone4", "Exaone4ForCausalLM"}},
          .read_config = read_exaone4_config,
          .create = create_exaone4,
          .gguf = {{"exaone4", translate_exaone4}}};
}

}  // namespace heddle::models
