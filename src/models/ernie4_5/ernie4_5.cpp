// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 with experts. Rotary positions turn neighbouring channels. The router adds a correction
// to its softmax scores to choose the experts; a shared expert computes every token, too. Baidu,
// "ERNIE 4.5 Technical Report", 2025.
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

void read_ernie_expert_layers(ConfigReader& reader, ModelConfig& config) {
  const int64_t last_layer = config.num_layers - 1;
  const int64_t step = reader.interval("moe_layer_interval", 1);
  const int64_t first =
      reader.integer("moe_layer_start_index", 1, {0, checkpoint::kPositions.high});
  const int64_t last = reader.integer("moe_layer_end_index", -1, {-1, checkpoint::kPositions.high});
  for (int64_t i = 0; i < config.num_layers; ++i) {
    config.is_moe_layer.push_back((i + 1) % step == 0 && i >= first &&
                                  i <= (last < 0 ? last_layer : last));
  }
}

void read_ernie4_5_config(ConfigReader& reader, ModelConfig& config) {
  config.rope.theta = 5e5;
  read_ernie_expert_layers(reader, config);
  if (config.num_moe_layers() == 0) return;
  config.moe = read_experts(reader, {.count = {reader.spelling("moe_num_experts", "num_experts")},
                                     .per_token = {reader.spelling("moe_k", "num_experts_per_tok")},
                                     .width = {"moe_intermediate_size"}});
  read_shared_experts(reader, "moe_num_shared_experts", *config.moe);
  config.moe->router = {.corrected = true};
}

std::unique_ptr<const Model> create_ernie4_5(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.interleaved = true;
  return make_decoder(config, {.ignored_prefixes = {"model.mtp_"}},
                      transformer_layers(config, attention));
}

void translate_ernie4_5(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "Ernie4_5_MoeForCausalLM"});
  gguf.set("moe_num_experts", gguf.required("expert_count"));
  gguf.set("moe_k", gguf.required("expert_used_count"));
  gguf.set("moe_intermediate_size", gguf.required("expert_feed_forward_length"));
  gguf.copy_integer("expert_shared_count", "moe_num_shared_experts");
  gguf.integer("expert_shared_feed_forward_length");  // redundant: equals the width of the experts
  gguf.copy_integer("interleave_moe_layer_step", "moe_layer_interval");
  gguf.copy_integer("leading_dense_block_count", "moe_layer_start_index");
  gguf.in_layers({{.stored = "ffn_gate_inp", .hub = "mlp.gate"}});
  gguf.tensors_in_layers({{.stored = "exp_probs_b.bias",
                           .hub = "mlp.moe_statics.e_score_correction_bias",
                           .shape = GgufShape::kOneRow}});
  add_gguf_experts(gguf, "mlp.");
  add_gguf_shared_expert(gguf, "mlp.shared_experts.");
}

checkpoint::SharedKeys ernie4_5_keys(ConfigReader& /*reader*/) {
  return {.default_norm_epsilon = 1e-5, .default_tied = true};
}

}  // namespace

Family ernie4_5() {
  return {.name = "ERNIE 4.5",
          .architectures = {"Ernie4_5_MoeForCausalLM"},
          .model_types = {{"ernie4_5_moe", "Ernie4_5_MoeForCausalLM"}},
          .shared_keys = ernie4_5_keys,
          .read_config = read_ernie4_5_config,
          .create = create_ernie4_5,
          .gguf = {{"ernie4_5-moe", translate_ernie4_5}}};
}

}  // namespace heddle::models
