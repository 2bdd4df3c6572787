// SPDX-License-Identifier: Apache-2.0
// Mixtral: Mistral with a mixture of experts in every layer. Jiang et al., "Mixtral of Experts",
// arXiv:2401.04088. The softmax over the chosen logits equals the renormalised softmax over all.
#include "models/gguf_translation.h"
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

bool has_gguf_experts(GgufTranslation& gguf) {
  return gguf.integer("expert_count").value_or(0) > 0;
}

// The converter stores the rows of queries and keys in pairs, for a rotation of neighbouring
// channels.
void translate_mixtral(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "MixtralForCausalLM", .pairs_rows = true});
  gguf.copy_integer("attention.sliding_window", "sliding_window");
  gguf.set("num_local_experts", gguf.required("expert_count"));
  gguf.set("num_experts_per_tok", gguf.required("expert_used_count"));
  gguf.in_layers({
      {.stored = "ffn_gate_inp", .hub = "block_sparse_moe.gate"},
      {.stored = "ffn_gate_exps", .hub = "block_sparse_moe.experts.#.w1"},
      {.stored = "ffn_up_exps", .hub = "block_sparse_moe.experts.#.w3"},
      {.stored = "ffn_down_exps", .hub = "block_sparse_moe.experts.#.w2"},
  });
}

}  // namespace

Family mixtral() {
  return {.name = "Mixtral",
          .architectures = {"MixtralForCausalLM"},
          .model_types = {{"mixtral", "MixtralForCausalLM"}},
          .read_config = read_mixtral_config,
          .create = create_mixtral,
          .gguf = {{"llama", translate_mixtral, has_gguf_experts}}};
}

}  // namespace heddle::models
