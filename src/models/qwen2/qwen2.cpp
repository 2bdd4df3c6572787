// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: Llama with biases on queries, keys and values. arXiv:2407.10671.
//
// Layers from max_window_layers on slide where use_sliding_window is true; no published model does.
#include "checkpoint/model_config.h"
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_qwen2_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  checkpoint::read_late_windows(reader, config);
  reader.disregard("attention_bias");  // biases are always present
}

std::unique_ptr<const Model> create_qwen2(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = true;
  return make_decoder(config, {}, transformer_layers(config, attention));
}

void translate_qwen2(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "Qwen2ForCausalLM"});
}

}  // namespace

Family qwen2() {
  return {.name = "Qwen2",
          .architectures = {"Qwen2ForCausalLM"},
          .model_types = {{"qwen2", "Qwen2ForCausalLM"}},
          .read_config = read_qwen2_config,
          .create = create_qwen2,
          .gguf = {{"qwen2", translate_qwen2}}};
}

}  // namespace heddle::models
