// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: Llama with biases on queries, keys and values. arXiv:2407.10671. Of Qwen2.5-VL
// the language model is served: its rotary positions in text are the plain ones.
//
// With use_sliding_window, layers from max_window_layers on slide; no published model uses that.
#include "checkpoint/model_config.h"
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/model.h"
#include "models/vision/vision_config.h"

namespace heddle::models {

namespace {

void read_qwen2_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  if (config.architecture.ends_with("ForConditionalGeneration")) {
    config.rope.sections = {16, 24, 24};
  }
  checkpoint::read_late_windows(reader, config);
  reader.disregard("attention_bias");  // Qwen2 always has these biases
}

std::unique_ptr<const Model> create_qwen2(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = true;
  const bool has_vision = config.architecture.ends_with("ForConditionalGeneration");
  if (!has_vision) return make_decoder(config, {}, transformer_layers(config, attention));
  return make_decoder(config,
                      {.other_names = {{.prefix = "model.language_model."}},
                       .ignored_prefixes = {"model.visual.", "visual."}},
                      transformer_layers(config, attention));
}

void translate_qwen2(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "Qwen2ForCausalLM"});
}

}  // namespace

Family qwen2() {
  return {.name = "Qwen2",
          .architectures = {"Qwen2ForCausalLM", "Qwen2_5_VLForConditionalGeneration"},
          .model_types = {{"qwen2", "Qwen2ForCausalLM"},
                          {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"}},
          .read_config = read_qwen2_config,
          .create = create_qwen2,
          .read_tower = read_window_tower,
          .gguf = {{"qwen2", translate_qwen2}}};
}

}  // namespace heddle::models
