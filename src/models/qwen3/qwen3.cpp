// SPDX-License-Identifier: Apache-2.0
// Qwen3: Llama with an RMS norm per head of queries and keys, before the rotation, and a head width
// of its own. "Qwen3 Technical Report", arXiv:2505.09388.
#include "checkpoint/model_config.h"
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_qwen3_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  checkpoint::read_late_windows(reader, config);
  config.attention_bias = reader.boolean("attention_bias", false);
  require_qk_norm(reader, config);
}

std::unique_ptr<const Model> create_qwen3(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kHeads;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  return make_decoder(config, {}, transformer_layers(config, attention));
}

}  // namespace

Family qwen3() {
  return {.name = "Qwen3",
          .architectures = {"Qwen3ForCausalLM"},
          .model_types = {{"qwen3", "Qwen3ForCausalLM"}},
          .read_config = read_qwen3_config,
          .create = create_qwen3};
}

}  // namespace heddle::models
