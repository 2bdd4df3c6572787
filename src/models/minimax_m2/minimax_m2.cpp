// SPDX-License-Identifier: Apache-2.0
// MiniMax-M2: RMS norms of whole queries and keys, rotation of a part of each head, and in every
// layer experts that are chosen by corrected sigmoid scores.
#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

void refuse_m2_variants(ConfigReader& reader, const ModelConfig& config) {
  require_qk_norm(reader, config);
  if (reader.text("qk_norm_type", std::string("per_layer")) != "per_layer") {
    reader.refuse("qk_norm_type", "only \"per_layer\" is served");
  }
  for (const int64_t type : reader.integers("attn_type_list", {0, 100})) {
    if (type != 1) return reader.refuse("attn_type_list", "only 1, full attention, is served");
  }
  if (reader.text("scoring_func", std::string("sigmoid")) != "sigmoid") {
    reader.refuse("scoring_func", "only \"sigmoid\" is served");
  }
  if (!reader.boolean("use_routing_bias", true)) {
    reader.refuse("use_routing_bias", "MiniMax-M2 is served with it");
  }
}

void read_minimax_m2_config(ConfigReader& reader, ModelConfig& config) {
  refuse_m2_variants(reader, config);
  checkpoint::read_rotary_dim(reader, config);
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), true);
  const std::string_view count = reader.spelling("num_local_experts", "num_experts");
  config.moe = read_experts(
      reader,
      {.count = {count}, .per_token = {"num_experts_per_tok"}, .width = {"intermediate_size"}});
  config.moe->router = {.sigmoid = true, .corrected = true};
}

std::unique_ptr<const Model> create_minimax_m2(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kWhole;
  return make_decoder(config, {.ignored_prefixes = {"model.mtp.", "mtp."}},
                      transformer_layers(config, attention, {.moe_scope = "block_sparse_moe."}));
}

void translate_minimax_m2(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "MiniMaxM2ForCausalLM"});
  gguf.set("num_local_experts", gguf.required("expert_count"));
  gguf.set("num_experts_per_tok", gguf.required("expert_used_count"));
  gguf.set("intermediate_size", gguf.required("expert_feed_forward_length"));
  gguf.set("rotary_dim", gguf.required("rope.dimension_count"));
  require_sigmoid_scores(gguf);
  gguf.in_layers({{.stored = "ffn_gate_inp", .hub = "block_sparse_moe.gate"}});
  gguf.tensors_in_layers(
      {{.stored = "exp_probs_b.bias", .hub = "block_sparse_moe.e_score_correction_bias"}});
  add_gguf_experts(gguf, "block_sparse_moe.", {"w1", "w3", "w2"});
}

}  // namespace

Family minimax_m2() {
  return {.name = "MiniMax-M2",
          .architectures = {"MiniMaxM2ForCausalLM"},
          .model_types = {{"minimax_m2", "MiniMaxM2ForCausalLM"}},
          .read_config = read_minimax_m2_config,
          .create = create_minimax_m2,
          .gguf = {{"minimax-m2", translate_minimax_m2}}};
}

}  // namespace heddle::models
