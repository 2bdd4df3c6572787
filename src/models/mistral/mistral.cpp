// SPDX-License-Identifier: Apache-2.0
// Mistral: Llama with a sliding window, in every layer unless the config says otherwise. Jiang et
// al., "Mistral 7B", arXiv:2310.06825. From v0.2 on sliding_window is null: full attention.
#include "checkpoint/model_config.h"
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::LayerKind;

void read_mistral_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  const bool slides = reader.has("sliding_window");
  checkpoint::read_layer_kinds(
      reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention},
      [&](int64_t) { return slides ? LayerKind::kSlidingAttention : LayerKind::kFullAttention; });
  checkpoint::read_sliding_window(reader, config);
}

std::unique_ptr<const Model> create_mistral(const checkpoint::ModelConfig& config) {
  return make_decoder(config, {}, transformer_layers(config, attention_options(config)));
}

}  // namespace

Family mistral() {
  return {.name = "Mistral",
          .architectures = {"MistralForCausalLM"},
          .model_types = {{"mistral", "MistralForCausalLM"}},
          .read_config = read_mistral_config,
          .create = create_mistral};
}

}  // namespace heddle::models
