// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/latent_config.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_ranges.h"
#include "checkpoint/readable.h"

namespace heddle::checkpoint {

namespace {

bool is_deepseek_v2(const ModelConfig& config) {
  return config.architecture == "DeepseekV2ForCausalLM";
}

bool is_deepseek_v3(const ModelConfig& config) {
  return config.architecture == "DeepseekV3ForCausalLM";
}

// The spelling a file uses, or the first, which then is reported as missing.
const char* spelling(const ConfigReader& reader, const char* first, const char* second) {
  return !reader.has(first) && reader.has(second) ? second : first;
}

void read_latent_attention(ConfigReader& reader, ModelConfig& config) {
  LatentAttentionConfig latent;
  if (reader.has("q_lora_rank")) {
    latent.q_lora_rank = reader.integer("q_lora_rank", std::nullopt, kWidth);
  }
  latent.kv_lora_rank = reader.integer("kv_lora_rank", std::nullopt, {1, 8192});
  latent.qk_nope_head_dim = reader.integer("qk_nope_head_dim", std::nullopt, kHeadDim);
  latent.qk_rope_head_dim = reader.integer("qk_rope_head_dim", std::nullopt, kHeadDim);
  latent.v_head_dim = reader.integer("v_head_dim", std::nullopt, kHeadDim);
  latent.rotates = !is_kimi_linear(config);
  latent.rope_interleave = reader.boolean("rope_interleave", true);
  config.latent_attention = latent;
  config.head_dim = latent.qk_rope_head_dim;
}

// Layer i has experts iff i >= first_k_dense_replace and i % moe_layer_freq == 0.
std::vector<bool> moe_layers_by_count(ConfigReader& reader, const ModelConfig& config,
                                      int64_t default_dense) {
  const int64_t dense =
      reader.integer("first_k_dense_replace", default_dense, {0, config.num_layers});
  const int64_t step = reader.integer("moe_layer_freq", 1, kLayers);
  std::vector<bool> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) layers.push_back(i >= dense && i % step == 0);
  return layers;
}

void read_deepseek_layers(ConfigReader& reader, ModelConfig& config) {
  config.layer_kinds.assign(static_cast<size_t>(config.num_layers), LayerKind::kFullAttention);
  if (reader.has("n_routed_experts")) {
    config.is_moe_layer = moe_layers_by_count(reader, config, 0);
  } else {
    config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), false);
  }
  config.num_nextn_predict_layers = reader.integer("num_nextn_predict_layers", 0, {0, 64});
}

// Which experts of all may be chosen from, by groups.
void read_groups(ConfigReader& reader, const char* groups_key, const char* kept_key,
                 MoeConfig& moe) {
  RouterConfig& router = *moe.router;
  const ConfigReader::IntegerRange range{1, moe.num_experts};
  router.num_groups = reader.integer(groups_key, 1, range);
  router.groups_kept = reader.integer(kept_key, 1, range);
  if (moe.num_experts % router.num_groups != 0) {
    reader.fail(groups_key, fmt::format("which does not divide {} experts", moe.num_experts));
    router.num_groups = 1;
  }
  if (router.groups_kept > router.num_groups) {
    reader.fail(kept_key, fmt::format("more than {} = {}", groups_key, router.num_groups));
  }
  if (moe.num_experts_per_token > router.groups_kept * (moe.num_experts / router.num_groups)) {
    reader.fail(kept_key, fmt::format("whose groups have fewer than {} experts to choose",
                                      moe.num_experts_per_token));
  }
}

// The sizes every one of these families has.
MoeConfig read_experts(ConfigReader& reader, const char* count_key, const char* chosen_key,
                       const char* shared_key) {
  MoeConfig moe;
  moe.num_experts = reader.integer(count_key, std::nullopt, kExperts);
  moe.num_experts_per_token = reader.integer(chosen_key, std::nullopt, kExperts);
  moe.intermediate_size = reader.integer("moe_intermediate_size", std::nullopt, kWidth);
  const int64_t num_shared = reader.integer(shared_key, 0, {0, 1024});
  moe.shared_intermediate_size = num_shared * moe.intermediate_size;
  if (moe.num_experts_per_token > moe.num_experts) {
    reader.fail(chosen_key, fmt::format("more than {} = {}", count_key, moe.num_experts));
  }
  moe.router = RouterConfig{};
  return moe;
}

// Softmax scores, of which the largest are taken everywhere or in the groups with the best expert.
void read_v2_router(ConfigReader& reader, MoeConfig& moe) {
  const std::string method = reader.text("topk_method", std::string("greedy"));
  if (method == "group_limited_greedy") {
    read_groups(reader, "n_group", "topk_group", moe);
  } else if (method != "greedy") {
    reader.fail(unimplemented(
        fmt::format("topk_method is {}; served are \"greedy\" and \"group_limited_greedy\"",
                    readable(method))));
  }
  const std::string score = reader.text("scoring_func", std::string("softmax"));
  if (score != "softmax") {
    reader.fail(unimplemented(
        fmt::format("scoring_func is {}; DeepSeek-V2 has \"softmax\"", readable(score))));
  }
  moe.normalize_top_k = reader.boolean("norm_topk_prob", false) && moe.num_experts_per_token > 1;
  // The original code scales only what it has not normalised.
  const double scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6});
  moe.router->scale = moe.normalize_top_k ? 1.0 : scale;
}

// Sigmoid scores; what is chosen is corrected by a bias, and groups by their two best.
void read_v3_router(ConfigReader& reader, MoeConfig& moe) {
  moe.router->sigmoid = true;
  moe.router->corrected = true;
  const std::string method = reader.text("topk_method", std::string("noaux_tc"));
  const std::string score = reader.text("scoring_func", std::string("sigmoid"));
  if (method != "noaux_tc") {
    reader.fail(unimplemented(
        fmt::format("topk_method is {}; DeepSeek-V3 has \"noaux_tc\"", readable(method))));
  }
  if (score != "sigmoid") {
    reader.fail(unimplemented(
        fmt::format("scoring_func is {}; DeepSeek-V3 has \"sigmoid\"", readable(score))));
  }
  read_groups(reader, "n_group", "topk_group", moe);
  moe.normalize_top_k = reader.boolean("norm_topk_prob", true);
  moe.router->scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6});
}

// The lists count layers from one, and each layer is in exactly one of them.
std::vector<LayerKind> kinds_by_lists(ConfigReader& reader, ConfigReader& lists,
                                      const ModelConfig& config) {
  const ConfigReader::IntegerRange range{1, config.num_layers};
  std::vector<int> times(static_cast<size_t>(config.num_layers), 0);
  std::vector<LayerKind> kinds(times.size(), LayerKind::kFullAttention);
  for (const int64_t layer : lists.integers("full_attn_layers", range)) {
    ++times[static_cast<size_t>(layer - 1)];
  }
  for (const int64_t layer : lists.integers("kda_layers", range)) {
    ++times[static_cast<size_t>(layer - 1)];
    kinds[static_cast<size_t>(layer - 1)] = LayerKind::kLinearAttention;
  }
  const auto wrong = std::ranges::find_if(times, [](int count) { return count != 1; });
  if (wrong != times.end()) {
    reader.fail(invalid_argument(
        fmt::format("linear_attn_config has layer {} in {} of kda_layers and full_attn_layers",
                    wrong - times.begin() + 1, *wrong)));
  }
  return kinds;
}

// One name of two for each layer.
std::vector<bool> layers_named(ConfigReader& reader, const char* key, std::string_view yes,
                               std::string_view no, int64_t num_layers) {
  const std::vector<std::string> names = reader.texts(key);
  if (static_cast<int64_t>(names.size()) != num_layers) {
    reader.fail(invalid_argument(
        fmt::format("{} has {} entries, num_hidden_layers is {}", key, names.size(), num_layers)));
  }
  std::vector<bool> layers;
  for (const std::string& name : names) {
    if (name != yes && name != no) {
      reader.fail(unimplemented(
          fmt::format("{} has {}; served are \"{}\" and \"{}\"", key, readable(name), yes, no)));
    }
    layers.push_back(name == yes);
  }
  layers.resize(static_cast<size_t>(num_layers));
  return layers;
}

void read_kimi_layer_kinds(ConfigReader& reader, ConfigReader& linear, ModelConfig& config) {
  const bool has_lists = linear.has("kda_layers") || linear.has("full_attn_layers");
  if (has_lists) config.layer_kinds = kinds_by_lists(reader, linear, config);
  if (reader.has("layer_types")) {
    std::vector<LayerKind> kinds;
    for (const bool is_linear : layers_named(reader, "layer_types", "linear_attention",
                                             "full_attention", config.num_layers)) {
      kinds.push_back(is_linear ? LayerKind::kLinearAttention : LayerKind::kFullAttention);
    }
    if (has_lists && kinds != config.layer_kinds) {
      reader.fail(invalid_argument("layer_types contradicts linear_attn_config's lists"));
    }
    config.layer_kinds = std::move(kinds);
  } else if (!has_lists) {
    for (int64_t i = 0; i < config.num_layers; ++i) {
      config.layer_kinds.push_back((i + 1) % 4 == 0 ? LayerKind::kFullAttention
                                                    : LayerKind::kLinearAttention);
    }
  }
}

void read_kimi_moe_layers(ConfigReader& reader, ModelConfig& config) {
  config.is_moe_layer = moe_layers_by_count(reader, config, 1);
  if (!reader.has("mlp_layer_types")) return;
  std::vector<bool> named =
      layers_named(reader, "mlp_layer_types", "sparse", "dense", config.num_layers);
  if (reader.has("first_k_dense_replace") && named != config.is_moe_layer) {
    reader.fail("first_k_dense_replace", "which contradicts mlp_layer_types");
  }
  config.is_moe_layer = std::move(named);
}

void read_kimi_delta_attention(ConfigReader& reader, ConfigReader& linear, ModelConfig& config) {
  LinearAttentionConfig delta;
  const bool nested = linear.has("num_heads");
  ConfigReader& source = nested ? linear : reader;
  delta.num_key_heads =
      source.integer(nested ? "num_heads" : "linear_num_heads", std::nullopt, kHeads);
  delta.key_head_dim =
      source.integer(nested ? "head_dim" : "linear_head_dim", std::nullopt, kHeadDim);
  delta.conv_kernel =
      source.integer(nested ? "short_conv_kernel_size" : "linear_conv_kernel_dim", 4, kConvolution);
  delta.num_value_heads = delta.num_key_heads;
  delta.value_head_dim = delta.key_head_dim;
  if (config.num_layers_of(LayerKind::kLinearAttention) > 0) config.linear_attention = delta;
}

// Later relatives reuse this model_type with more in it.
void refuse_kimi_variations(ConfigReader& reader, ConfigReader& linear) {
  const auto refuse = [&](const char* key) {
    reader.fail(unimplemented(fmt::format("{} is set; Kimi-Linear is served without it", key)));
  };
  const auto is_on = [](ConfigReader& scope, const char* key) {
    const nlohmann::json* value = scope.find(key);
    return value != nullptr && !(value->is_boolean() && !value->get<bool>()) &&
           !(value->is_number() && value->get<double>() == 0);
  };
  for (const char* key : {"gate_lower_bound", "use_full_rank_gate"}) {
    if (is_on(linear, key)) refuse(key);
  }
  for (const char* key : {"mla_use_output_gate", "attn_res_block_size", "routed_expert_hidden_size",
                          "latent_moe_use_norm"}) {
    if (is_on(reader, key)) refuse(key);
  }
  const std::string score = reader.text("moe_router_activation_func", std::string("sigmoid"));
  if (score != "sigmoid") {
    reader.fail(unimplemented(fmt::format(
        "moe_router_activation_func is {}; only \"sigmoid\" is served", readable(score))));
  }
}

void read_kimi_linear(ConfigReader& reader, ModelConfig& config) {
  ConfigReader linear = reader.narrowed({reader.object("linear_attn_config")}, /*keep_own=*/false);
  refuse_kimi_variations(reader, linear);
  read_kimi_layer_kinds(reader, linear, config);
  read_kimi_moe_layers(reader, config);
  read_kimi_delta_attention(reader, linear, config);
}

MoeConfig read_kimi_experts(ConfigReader& reader) {
  MoeConfig moe = read_experts(reader, spelling(reader, "num_experts", "num_local_experts"),
                               spelling(reader, "num_experts_per_token", "num_experts_per_tok"),
                               spelling(reader, "num_shared_experts", "n_shared_experts"));
  moe.router->sigmoid = true;
  moe.router->corrected = true;
  read_groups(reader, spelling(reader, "num_expert_group", "n_group"), "topk_group", moe);
  moe.normalize_top_k = reader.boolean(spelling(reader, "moe_renormalize", "norm_topk_prob"), true);
  moe.router->scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6});
  return moe;
}

}  // namespace

bool is_kimi_linear(const ModelConfig& config) {
  return config.architecture == "KimiLinearForCausalLM";
}

bool is_latent_family(const ModelConfig& config) {
  return is_deepseek_v2(config) || is_deepseek_v3(config) || is_kimi_linear(config);
}

void read_latent_family(ConfigReader& reader, ModelConfig& config) {
  read_latent_attention(reader, config);
  if (is_kimi_linear(config)) {
    read_kimi_linear(reader, config);
  } else {
    read_deepseek_layers(reader, config);
  }
  if (config.num_moe_layers() > 0) {
    if (is_kimi_linear(config)) {
      config.moe = read_kimi_experts(reader);
    } else {
      MoeConfig moe =
          read_experts(reader, "n_routed_experts", "num_experts_per_tok", "n_shared_experts");
      if (is_deepseek_v2(config)) {
        read_v2_router(reader, moe);
      } else {
        read_v3_router(reader, moe);
      }
      config.moe = moe;
    }
  }
  if (config.num_moe_layers() < config.num_layers) {
    config.intermediate_size = reader.integer("intermediate_size", std::nullopt, kWidth);
  }
}

}  // namespace heddle::checkpoint
