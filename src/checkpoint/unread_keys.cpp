// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/unread_keys.h"

#include <span>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::checkpoint {

namespace {

using nlohmann::json;

// A key and the JSON value at which it changes nothing. Empty value: the key must be off
// (ConfigReader::is_off).
struct Key {
  std::string_view name;
  std::string_view neutral = {};
};

constexpr Key kOfAllModels[] = {
    // Keys of attention: projections, scores and what a token sees.
    {"attention_bias"},
    {"attention_out_bias"},
    {"qkv_bias"},
    {"clip_qkv"},
    {"use_qk_norm"},
    {"qk_layernorm"},
    {"attn_output_gate"},
    {"attention_k_eq_v"},
    {"global_head_dim"},
    {"num_global_key_value_heads"},
    {"num_kv_shared_layers"},
    {"o_lora_rank"},
    {"attn_temperature_tuning"},
    {"attn_logit_softcapping"},
    {"query_pre_attn_scalar"},
    {"attention_multiplier"},
    {"use_sliding_window"},
    {"sliding_window_pattern"},
    {"attention_chunk_size"},
    {"dual_chunk_attention_config"},
    {"use_bidirectional_attention"},
    {"compress_ratios"},
    {"index_topk"},
    {"full_attention_interval", "1"},
    {"hybrid_override_pattern"},
    // Keys that concern position embeddings.
    {"alibi"},
    {"no_rope_layers"},
    {"rope_interleave"},
    {"rope_interleaved"},
    {"rope_local_base_freq"},
    {"rotary_dim"},
    // Keys that concern feed-forward blocks.
    {"mlp_bias"},
    {"swiglu_limit"},
    {"use_double_wide_mlp"},
    {"num_experts"},
    {"num_local_experts"},
    {"n_routed_experts"},
    // Keys of the parts around attention and feed-forward blocks.
    {"use_bias"},
    {"lm_head_bias"},
    {"use_parallel_residual"},
    {"hc_mult"},
    {"hidden_size_per_layer_input"},
    {"scale_emb", "1.0"},
    {"scale_depth"},
    {"embedding_multiplier", "1.0"},
    {"residual_multiplier", "1.0"},
    {"logit_scale", "1.0"},
    {"logits_scaling", "1.0"},
    {"final_logit_softcapping"},
};

constexpr Key kOfExperts[] = {
    {"n_shared_experts"},
    {"num_shared_experts"},
    {"shared_expert_intermediate_size"},
    {"shared_intermediate_size"},
    {"moe_shared_expert_intermediate_size"},
    {"mlp_only_layers"},
    {"decoder_sparse_step", "1"},
    {"first_k_dense_replace"},
    {"moe_layer_freq", "1"},
    {"interleave_moe_layer_step", "1"},
    {"num_hash_layers"},
    {"n_group", "1"},
    {"num_expert_group", "1"},
    {"topk_group", "1"},
    {"topk_method", "\"greedy\""},
    {"scoring_func", "\"softmax\""},
    {"moe_router_activation_func", "\"softmax\""},
    {"use_routing_bias"},
    {"routed_scaling_factor", "1.0"},
};

void refuse_unread(ConfigReader& reader, std::string_view family, std::span<const Key> keys) {
  for (const auto& [name, neutral] : keys) {
    if (reader.was_asked_for(name)) continue;
    const json* const value = reader.find(name);
    if (neutral.empty()) {
      if (!reader.is_off(name)) reader.refuse(name, fmt::format("{} is served without it", family));
    } else if (value != nullptr && *value != json::parse(neutral)) {
      reader.refuse(name, fmt::format("{} is served with {} only", family, neutral));
    }
  }
}

// Whether sliding_window has an effect: not if use_sliding_window is false or the window covers
// every position.
bool window_matters(const ConfigReader& reader) {
  if (reader.was_asked_for("sliding_window") || reader.is_off("sliding_window")) return false;
  const json* const in_use = reader.find("use_sliding_window");
  if (in_use != nullptr && *in_use == false) return false;
  const json* const positions = reader.find("max_position_embeddings");
  return positions == nullptr || *reader.find("sliding_window") < *positions;
}

}  // namespace

void refuse_unread_keys(ConfigReader& reader, const ModelConfig& config) {
  if (window_matters(reader)) {
    reader.refuse("sliding_window",
                  fmt::format("{} is served with attention to all tokens; remove the key, or set "
                              "use_sliding_window to false, where that is meant",
                              config.family));
  }
  refuse_unread(reader, config.family, kOfAllModels);
  if (config.num_moe_layers() > 0) refuse_unread(reader, config.family, kOfExperts);
}

}  // namespace heddle::checkpoint
