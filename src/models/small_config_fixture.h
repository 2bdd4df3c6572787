// SPDX-License-Identifier: Apache-2.0
// For tests of families: configurations of the smallest sizes, and what becomes of them.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/registry.h"

namespace heddle::models::testing {

// Kinds of layers, short enough for lists of them.
inline constexpr auto kL = checkpoint::LayerKind::kLinearAttention;
inline constexpr auto kF = checkpoint::LayerKind::kFullAttention;

// The keys that all files share, for `architecture`, updated by `changes`.
inline nlohmann::json small_config(std::string_view architecture,
                                   const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json config = {
      {"architectures", {architecture}}, {"vocab_size", 320},      {"hidden_size", 64},
      {"intermediate_size", 96},         {"num_hidden_layers", 4}, {"num_attention_heads", 4},
      {"num_key_value_heads", 2}};
  config.update(changes);
  return config;
}

// A model with recurrent layers, gated attention and experts.
inline nlohmann::json small_gated_hybrid(std::string_view architecture,
                                         const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json config = small_config(architecture, {{"head_dim", 32},
                                                      {"linear_num_key_heads", 2},
                                                      {"linear_num_value_heads", 4},
                                                      {"num_experts", 8},
                                                      {"num_experts_per_tok", 3},
                                                      {"moe_intermediate_size", 32}});
  config.update(changes);
  return config;
}

// Six layers of latent attention; `changes` says what else the architecture has.
inline nlohmann::json small_latent(std::string_view architecture, const nlohmann::json& changes) {
  nlohmann::json config = small_config(architecture, {{"hidden_size", 66},
                                                      {"num_hidden_layers", 6},
                                                      {"num_key_value_heads", 4},
                                                      {"kv_lora_rank", 32},
                                                      {"qk_nope_head_dim", 16},
                                                      {"qk_rope_head_dim", 8},
                                                      {"v_head_dim", 12},
                                                      {"moe_intermediate_size", 32}});
  config.update(changes);
  return config;
}

// With experts in groups, as DeepSeek publishes its files.
inline nlohmann::json small_latent_experts(std::string_view architecture) {
  return small_latent(architecture, nlohmann::json::parse(R"({
    "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "n_group": 4,
    "topk_group": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5})"));
}

// With recurrent layers, as Kimi Linear publishes its files.
inline nlohmann::json small_latent_hybrid(std::string_view architecture) {
  return small_latent(architecture, nlohmann::json::parse(R"({
    "head_dim": 72, "num_experts": 8, "num_shared_experts": 1, "num_experts_per_token": 2,
    "moe_renormalize": true, "num_expert_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "model_max_length": 4096, "mla_use_nope": true,
    "routed_scaling_factor": 2.446, "moe_router_activation_func": "sigmoid",
    "linear_attn_config": {"kda_layers": [1, 2, 3, 5, 6], "full_attn_layers": [4],
      "num_heads": 3, "head_dim": 16, "short_conv_kernel_size": 4}})"));
}

// With Mamba-2 layers, as each of these architectures spells them; empty for others.
inline nlohmann::json small_mamba2(std::string_view architecture) {
  nlohmann::json mamba = {
      {"mamba_n_heads", 8}, {"mamba_d_state", 16}, {"mamba_n_groups", 2}, {"mamba_d_conv", 4}};
  if (architecture.starts_with("Bamba")) {
    mamba["attn_layer_indices"] = {1, 3};
    return mamba;
  }
  if (architecture.starts_with("Zamba2")) {
    return {{"n_mamba_heads", 8},   {"mamba_d_state", 16},
            {"mamba_ngroups", 2},   {"num_mem_blocks", 2},
            {"adapter_rank", 8},    {"use_shared_attention_adapter", true},
            {"use_mem_rope", true}, {"layers_block_type", {"hybrid", "mamba", "hybrid", "hybrid"}}};
  }
  if (architecture.starts_with("FalconH1")) {
    mamba.update({{"mamba_d_ssm", 96}, {"mamba_rms_norm", true}, {"head_dim", 24}});
    return mamba;
  }
  if (architecture.starts_with("GraniteMoeHybrid")) {
    mamba.update({{"layer_types", {"mamba", "attention", "mamba", "mamba"}},
                  {"num_local_experts", 8},
                  {"num_experts_per_tok", 2},
                  {"shared_intermediate_size", 48}});
    return mamba;
  }
  if (!architecture.starts_with("NemotronH")) return {};
  return {{"hybrid_override_pattern", "ME*-"},
          {"mamba_num_heads", 8},
          {"mamba_head_dim", 16},
          {"ssm_state_size", 16},
          {"n_groups", 2},
          {"head_dim", 24},
          {"n_routed_experts", 8},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 32},
          {"moe_shared_expert_intermediate_size", 48}};
}

// The smallest configuration of any architecture that is served.
inline nlohmann::json small_of(std::string_view architecture) {
  nlohmann::json experts = {
      {"num_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 32}};
  if (architecture.starts_with("Qwen3Next")) return small_gated_hybrid(architecture);
  if (architecture.starts_with("Deepseek") || architecture.find("K25") != std::string_view::npos) {
    return small_latent_experts(architecture);
  }
  if (architecture.starts_with("Kimi")) return small_latent_hybrid(architecture);
  if (const nlohmann::json mamba = small_mamba2(architecture); !mamba.is_null()) {
    return small_config(architecture, mamba);
  }
  for (const char* local : {"GptOss", "Mixtral", "GraniteMoe", "MiniMax", "Phimoe"}) {
    if (!architecture.starts_with(local)) continue;
    return small_config(architecture, {{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  }
  if (architecture.starts_with("Gemma4")) {
    return small_config(architecture, nlohmann::json::parse(R"({
      "head_dim": 16, "global_head_dim": 32, "sliding_window": 16, "vocab_size_per_layer_input": 320,
      "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 1,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
      "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
        "sliding_attention": {}}})"));
  }
  if (architecture.starts_with("Mistral4") || architecture.starts_with("Glm4MoeLite")) {
    return small_latent(architecture, {{"n_routed_experts", 8}, {"num_experts_per_tok", 2}});
  }
  if (architecture.starts_with("Step3p")) {
    return small_config(architecture, {{"n_routed_experts", 8},
                                       {"num_experts_per_tok", 2},
                                       {"moe_intermediate_size", 32},
                                       {"head_dim", 16},
                                       {"num_sliding_attention_heads", 6}});
  }
  if (architecture.starts_with("Lfm2")) {
    nlohmann::json config = small_config(
        architecture,
        {{"block_multiple_of", 16}, {"layer_types", {"conv", "full_attention", "conv", "conv"}}});
    if (!architecture.starts_with("Lfm2Moe")) return config;
    config.update(experts);
    config["num_dense_layers"] = 1;
    return config;
  }
  if (architecture.starts_with("OlmoHybrid")) {
    return small_config(architecture, {{"linear_key_head_dim", 8}, {"linear_value_head_dim", 16}});
  }
  if (architecture.starts_with("Jamba")) {
    return small_config(architecture, {{"attn_layer_period", 4},
                                       {"attn_layer_offset", 2},
                                       {"num_experts", 4},
                                       {"mamba_expand", 8},
                                       {"mamba_d_state", 8},
                                       {"mamba_dt_rank", 4}});
  }
  if (architecture.starts_with("NanoChat")) {
    return small_config(architecture, {{"hidden_act", "relu2"}});
  }
  if (architecture.starts_with("Glm4Moe") || architecture.starts_with("MiMo")) {
    return small_config(architecture, {{"n_routed_experts", 8},
                                       {"num_experts_per_tok", 2},
                                       {"moe_intermediate_size", 32},
                                       {"num_key_value_heads", 2},
                                       {"head_dim", 24}});
  }
  if (architecture.starts_with("Qwen2Moe")) experts["shared_expert_intermediate_size"] = 80;
  if (architecture.starts_with("Qwen3_5Moe")) experts["shared_expert_intermediate_size"] = 48;
  return architecture.find("Moe") == std::string_view::npos ? small_config(architecture)
                                                            : small_config(architecture, experts);
}

inline checkpoint::ModelConfig parse(const nlohmann::json& config) {
  auto parsed = parse_config(config.dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? std::move(*parsed) : checkpoint::ModelConfig{};
}

// kOk with an empty message when it is served after all.
inline Status refusal(const nlohmann::json& config) { return parse_config(config.dump()).status(); }

inline std::unique_ptr<const Model> model_of(const nlohmann::json& config) {
  return create_model(parse(config));
}

// The number of last tokens that each layer sees; 0: all.
inline std::vector<int64_t> windows_of(const nlohmann::json& config) {
  const checkpoint::ModelConfig parsed = parse(config);
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < parsed.num_layers; ++i) windows.push_back(parsed.window_of(i));
  return windows;
}

// Every hub tensor that a model can be loaded from, all spellings together.
inline std::set<std::string> hub_names(const Model& model) {
  std::set<std::string> names;
  for (const checkpoint::WeightSpec& spec : model.weight_specs()) {
    for (const checkpoint::Assembly& assembly : spec.alternatives) {
      for (const checkpoint::HubPiece& piece : assembly) names.insert(piece.tensor.name);
    }
  }
  return names;
}

}  // namespace heddle::models::testing
