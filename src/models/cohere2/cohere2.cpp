// SPDX-License-Identifier: Apache-2.0
// Cohere 2 (Command A, Command R7B). Attention and MLP of a layer both read the output of one layer
// norm, and both are added to the residual. Of four layers three attend within a window and rotate
// neighbouring channels; the fourth attends to all tokens and has no rotary positions.
// Cohere, "Command A", arXiv:2504.00698.
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_cohere2_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  checkpoint::read_periodic_windows(reader, config, 4, 4096);
  config.attention_bias = reader.boolean("attention_bias", false);
  config.own.set(reader.number("logit_scale", 0.0625, {-1e6, 1e6}));
}

std::unique_ptr<const Model> create_cohere2(const checkpoint::ModelConfig& config) {
  AttentionOptions options = attention_options(config);
  options.interleaved = true;
  options.qkv_bias = config.attention_bias;
  options.output_bias = config.attention_bias;
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    AttentionOptions attention = in_layer(options, config, i);
    if (attention.window == 0) attention.rope_table.reset();
    layers.push_back(transformer_layer(config, attention, {.frame = Frame::kParallel}, i));
  }
  return make_decoder(config,
                      {.norm_kind = NormKind::kLayer, .logit_scale = config.own.get<double>()},
                      std::move(layers));
}

checkpoint::SharedKeys cohere2_keys(checkpoint::ConfigReader& /*reader*/) {
  return {.norm_epsilon = "layer_norm_eps", .default_norm_epsilon = 1e-5, .default_tied = true};
}

// In all published models every fourth layer has full attention, and no layer has biases.
void translate_cohere2(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "Cohere2ForCausalLM"});
  gguf.copy_number("attention.layer_norm_epsilon", "layer_norm_eps");
  gguf.copy_number("logit_scale", "logit_scale");
  translate_windows(gguf, 4);
}

}  // namespace

Family cohere2() {
  return {.name = "Cohere 2",
          .architectures = {"Cohere2ForCausalLM"},
          .model_types = {{"cohere2", "Cohere2ForCausalLM"}},
          .shared_keys = cohere2_keys,
          .read_config = read_cohere2_config,
          .create = create_cohere2,
          .gguf = {{"cohere2", translate_cohere2}}};
}

}  // namespace heddle::models
