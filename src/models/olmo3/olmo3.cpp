// SPDX-License-Identifier: Apache-2.0
// OLMo 3: norms after attention and MLP instead of before, RMS norms of whole queries and keys, and
// three sliding layers for each full one. Only the full layers have rotary scaling. OLMo team, "2
// OLMo 2 Furious", arXiv:2501.00656, for the norms.
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_olmo3_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", false);
  // the theta of full layers, without their scaling
  config.sliding_rope = checkpoint::RopeConfig{.theta = 0};
  checkpoint::read_periodic_windows(reader, config, 4, 4096);
}

std::unique_ptr<const Model> create_olmo3(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kWhole;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  return make_decoder(config, {}, transformer_layers(config, attention, {.frame = Frame::kPost}));
}

// OLMo 2 is OLMo 3 without sliding layers. Rotary scaling concerns only the full layers.
void translate_olmo3(GgufTranslation& gguf) {
  translate_transformer(gguf,
                        {.architecture = "Olmo3ForCausalLM", .mlp_norm = "post_attention_norm"});
  gguf.in_layers({{.stored = "post_ffw_norm", .hub = "post_feedforward_layernorm"}});
  translate_windows(gguf, 4);
}

}  // namespace

Family olmo3() {
  return {.name = "OLMo 3",
          .architectures = {"Olmo3ForCausalLM"},
          .model_types = {{"olmo3", "Olmo3ForCausalLM"}},
          .read_config = read_olmo3_config,
          .create = create_olmo3,
          .gguf = {{"olmo2", translate_olmo3}}};
}

}  // namespace heddle::models
