// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-4: Llama whose files have queries, keys and values in one tensor, and gate and up.
// Abdin et al., "Phi-3 Technical Report", arXiv:2404.14219.
#include "models/layers/decoder.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_phi3_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  checkpoint::read_windows_everywhere(reader, config);
  checkpoint::ConfigReader scaling = reader.narrowed(
      {reader.object("rope_parameters"), reader.object("rope_scaling")}, /*keep_own=*/false);
  const std::string_view key = scaling.spelling("rope_type", "type");
  const std::string type = scaling.text(key, std::string("default"));
  if (type == "yarn" || type == "su" || type == "longrope") {
    scaling.refuse(key, "longrope, which Phi-3 means by it, is not served by this build");
  }
}

std::unique_ptr<const Model> create_phi3(const checkpoint::ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.is_fused = true;
  return make_decoder(config, {},
                      transformer_layers(config, attention, {.mlp = {.is_fused = true}}));
}

}  // namespace

Family phi3() {
  return {.name = "Phi-3",
          .architectures = {"Phi3ForCausalLM"},
          .model_types = {{"phi3", "Phi3ForCausalLM"}},
          .read_config = read_phi3_config,
          .create = create_phi3};
}

}  // namespace heddle::models
