// SPDX-License-Identifier: Apache-2.0
// Qwen3: Llama with an RMS norm per head of queries and keys, before the rotation, and a head width
// of its own. "Qwen3 Technical Report", arXiv:2505.09388. Of Qwen3-VL the language model is served:
// its rotary positions in text are the plain ones.
#include "checkpoint/model_config.h"
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/model.h"
#include "models/vision/vision_config.h"

namespace heddle::models {

namespace {

void read_qwen3_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  if (config.architecture.ends_with("ForConditionalGeneration")) {
    config.rope.sections = {24, 20, 20};
    config.rope.interleaves_sections = true;
  }
  checkpoint::read_late_windows(reader, config);
  config.attention_bias = reader.boolean("attention_bias", false);
  require_qk_norm(reader, config);
}

std::unique_ptr<const Model> create_qwen3(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kHeads;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  const bool has_vision = config.architecture.ends_with("ForConditionalGeneration");
  return make_decoder(config,
                      {.hub_prefix = has_vision ? "model.language_model." : "model.",
                       .ignored_prefixes = {"model.visual.", "visual."}},
                      transformer_layers(config, attention));
}

void translate_qwen3(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "Qwen3ForCausalLM"});
  gguf.disregard("n_deepstack_layers");  // this key and the next one concern images
  gguf.disregard("rope.dimension_sections");
}

}  // namespace

Family qwen3() {
  return {.name = "Qwen3",
          .architectures = {"Qwen3ForCausalLM", "Qwen3VLForConditionalGeneration"},
          .model_types = {{"qwen3", "Qwen3ForCausalLM"},
                          {"qwen3_vl", "Qwen3VLForConditionalGeneration"}},
          .read_config = read_qwen3_config,
          .create = create_qwen3,
          .read_tower = read_deep_tower,
          .gguf = {{"qwen3", translate_qwen3}, {"qwen3vl", translate_qwen3}}};
}

}  // namespace heddle::models
