// SPDX-License-Identifier: Apache-2.0
// Mixtral: Mistral with a mixture of experts in every layer. Jiang et al., "Mixtral of Experts",
// arXiv:2401.04088. The softmax over the chosen logits is that over all, renormalised.
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"

namespace heddle::models {

namespace {

void read_mixtral_config(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config) {
  checkpoint::read_windows_everywhere(reader, config);
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), true);
  config.moe = read_experts(reader, {.count = {"num_local_experts", 8},
                                     .per_token = {"num_experts_per_tok", 2},
                                     .width = {"intermediate_size"}});
}

std::unique_ptr<const Model> create_mixtral(const checkpoint::ModelConfig& config) {
  return make_decoder(
      config, {},
      transformer_layers(config, attention_options(config), {.moe_scope = "block_sparse_moe."}));
}

}  // namespace

Family mixtral() {
  return {.name = "Mixtral",
          .architectures = {"MixtralForCausalLM"},
          .model_types = {{"mixtral", "MixtralForCausalLM"}},
          .read_config = read_mixtral_config,
          .create = create_mixtral};
}

}  // namespace heddle::models
