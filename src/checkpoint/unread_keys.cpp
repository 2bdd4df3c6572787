// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/unread_keys.h"

#include <span>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::checkpoint {

namespace {

using nlohmann::json;

// A key, and the value at which it changes nothing, as JSON. Empty: it must be off
// (ConfigReader::is_off).
struct Key {
  std::string_view name;
  std::string_view neutral = {};
};

constexpr Key kOfAllModels[] = {
    {"attention_bias"},
    {"qkv_bias"},
    {"use_qk_norm"},
    {"qk_layernorm"},
    {"attn_output_gate"},
    {"use_sliding_window"},
    {"attention_chunk_size"},
    {"attn_logit_softcapping"},
    {"query_pre_attn_scalar"},
    {"attention_multiplier"},
    {"index_topk"},
    {"no_rope_layers"},
    {"full_attention_interval", "1"},
    {"mlp_bias"},
    {"swiglu_limit"},
    {"num_experts"},
    {"num_local_experts"},
    {"n_routed_experts"},
    {"embedding_multiplier", "1.0"},
    {"residual_multiplier", "1.0"},
    {"logits_scaling", "1.0"},
    {"final_logit_softcapping"},
};

constexpr Key kOfExperts[] = {
    {"n_shared_experts"},
    {"num_shared_experts"},
    {"shared_expert_intermediate_size"},
    {"mlp_only_layers"},
    {"decoder_sparse_step", "1"},
    {"n_group", "1"},
    {"num_expert_group", "1"},
    {"topk_group", "1"},
    {"topk_method", "\"greedy\""},
    {"scoring_func", "\"softmax\""},
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

// A window is not used where use_sliding_window is false or it holds every position.
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
