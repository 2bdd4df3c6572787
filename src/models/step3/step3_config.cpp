// SPDX-License-Identifier: Apache-2.0
#include "models/step3/step3_config.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/layers/expert_config.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;
using nlohmann::json;

// Reads a list with a number for each layer, in which null means 0; empty if the file has no such
// list. Lists may be longer than the model: the further entries belong to layers that predict
// further tokens.
std::vector<double> read_numbers(ConfigReader& reader, const ModelConfig& config,
                                 std::string_view key) {
  const json* const list = reader.find(key);
  if (list == nullptr || !list->is_array()) return {};
  std::vector<double> numbers;
  for (const json& value : *list) {
    if (!value.is_number() && !value.is_null()) reader.fail(key, "not a list of numbers");
    numbers.push_back(value.is_number() ? value.get<double>() : 0);
  }
  if (std::ssize(numbers) < config.num_layers) {
    reader.fail(key, fmt::format("but num_hidden_layers is {}", config.num_layers));
  }
  numbers.resize(static_cast<size_t>(config.num_layers));
  return numbers;
}

// Reads a list that must have one number for all layers of a kind; `fallback` if there is no list.
double number_of_kind(ConfigReader& reader, const ModelConfig& config, std::string_view key,
                      LayerKind kind, double fallback) {
  const std::vector<double> numbers = read_numbers(reader, config, key);
  std::optional<double> found;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (config.layer_kinds[i] != kind) continue;
    if (found && *found != numbers[i]) {
      reader.refuse(key, "layers of one kind with several values are not served");
    }
    found = numbers[i];
  }
  return found.value_or(fallback);
}

// Reads one set of rotary parameters for each kind of layer, or lists with a number for each layer.
// In the second spelling rope_scaling concerns only full layers.
void read_step3_rotation(ConfigReader& reader, ModelConfig& config) {
  checkpoint::RopeConfigs defaults{.rope = {.theta = 5e6, .partial_rotary_factor = 0.5},
                                   .sliding = checkpoint::RopeConfig{.theta = 1e4}};
  for (const auto& [kind, rope] : {std::pair(LayerKind::kFullAttention, &defaults.rope),
                                   {LayerKind::kSlidingAttention, &*defaults.sliding}}) {
    rope->theta = number_of_kind(reader, config, "rope_theta", kind, rope->theta);
    rope->partial_rotary_factor =
        number_of_kind(reader, config, "partial_rotary_factors", kind, rope->partial_rotary_factor);
  }
  json scaling = json::object();  // the only set in old files, which is for full layers
  if (const json* const old = reader.object("rope_scaling")) scaling = *old;
  scaling["rope_theta"] = defaults.rope.theta;
  const bool has_lists =
      reader.find("rope_theta") != nullptr && reader.find("rope_theta")->is_array();
  const json sets = {
      {"rope_parameters", {{"full_attention", scaling}, {"sliding_attention", json::object()}}}};
  ConfigReader lists = reader.narrowed({&sets}, /*keep_own=*/false);
  const checkpoint::RopeConfigs ropes = checkpoint::read_rope_configs(
      has_lists ? lists : reader, defaults, /*slides=*/true, config.max_position_embeddings);
  config.rope = ropes.rope;
  config.sliding_rope = ropes.sliding;
}

// Reads which layers have experts: mlp_layer_types, or moe_layers_enum ("3,4,5"). Without either
// key, all layers but the first three have experts.
std::vector<bool> read_step3_expert_layers(ConfigReader& reader, const ModelConfig& config) {
  std::vector<bool> layers(static_cast<size_t>(config.num_layers), false);
  if (const std::vector<std::string> kinds = reader.texts("mlp_layer_types"); !kinds.empty()) {
    if (kinds.size() < layers.size()) reader.fail("mlp_layer_types", "not one for each layer");
    for (size_t i = 0; i < std::min(kinds.size(), layers.size()); ++i) {
      layers[i] = kinds[i] == "sparse";
    }
    return layers;
  }
  constexpr std::string_view kList = "moe_layers_enum";
  if (!reader.has(kList)) {
    for (size_t i = 3; i < layers.size(); ++i) layers[i] = true;
    return layers;
  }
  const std::string text = reader.text(kList, std::string());
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    size_t layer = 0;
    const auto [after, error] = std::from_chars(at, end, layer);
    if (error != std::errc() || (after < end && *after != ',')) {
      reader.fail(kList, "not a list of layers like \"3,4,5\"");
      return layers;
    }
    if (layer < layers.size()) layers[layer] = true;
    at = after + 1;
  }
  return layers;
}

// Refuses settings of the vendor's class that change the results and that no published file uses.
void refuse_other_settings(ConfigReader& reader) {
  if (reader.text("moe_router_activation", std::string("sigmoid")) != "sigmoid") {
    reader.refuse("moe_router_activation", "only \"sigmoid\" is served");
  }
  if (!reader.boolean("norm_expert_weight", true)) {
    reader.refuse("norm_expert_weight", "only true is served");
  }
  const json* const rope_layers = reader.find("use_rope_layers");
  if (rope_layers != nullptr && rope_layers->is_array() && !rope_layers->empty()) {
    reader.refuse("use_rope_layers", "layers without rotation are not served");
  }
  const std::vector<std::string> yarn = reader.texts("yarn_only_types");
  if (std::ranges::any_of(yarn, [](const std::string& kind) { return kind != "full_attention"; })) {
    reader.refuse("yarn_only_types", "only full_attention is served");
  }
}

void read_step3_moe(ConfigReader& reader, ModelConfig& config, Step3Config& own) {
  config.is_moe_layer = read_step3_expert_layers(reader, config);
  own.expert_limits = read_numbers(reader, config, "swiglu_limits");
  own.shared_limits = read_numbers(reader, config, "swiglu_limits_shared");
  for (std::vector<double>* limits : {&own.expert_limits, &own.shared_limits}) {
    limits->resize(static_cast<size_t>(config.num_layers));
  }
  if (config.num_moe_layers() == 0) return;
  config.moe =
      read_experts(reader, {.count = {reader.spelling("n_routed_experts", "moe_num_experts")},
                            .per_token = {reader.spelling("num_experts_per_tok", "moe_top_k")},
                            .width = {"moe_intermediate_size"}});
  own.shared_intermediate_size =
      reader.integer("share_expert_dim", config.moe->intermediate_size, checkpoint::kWidth);
  config.moe->router = {.sigmoid = true,
                        .corrected = true,
                        .scale = reader.number("moe_router_scaling_factor", 1.0, {-1e6, 1e6})};
}

void read_step3_heads(ConfigReader& reader, ModelConfig& config, Step3Config& own) {
  config.num_key_value_heads =
      reader.integer("num_attention_groups", config.num_key_value_heads, checkpoint::kHeads);
  config.head_dim = reader.integer("head_dim", 128, checkpoint::kHeadDim);
  const json* const other = reader.object("attention_other_setting");
  ConfigReader sliding = reader.narrowed({other}, /*keep_own=*/false);
  own.num_sliding_heads = reader.integer(
      "num_sliding_attention_heads",
      sliding.integer("num_attention_heads", config.num_attention_heads, checkpoint::kHeads),
      checkpoint::kHeads);
  for (const int64_t heads : {config.num_attention_heads, own.num_sliding_heads}) {
    if (heads % config.num_key_value_heads == 0) continue;
    reader.fail(invalid_argument(
        fmt::format("{} heads of keys do not divide {} heads", config.num_key_value_heads, heads)));
  }
  own.score_width =
      reader.number("query_pre_attn_scalar", static_cast<double>(config.head_dim), {1e-6, 1e6});
  constexpr std::string_view kGating = "gating";
  const json* const gating = reader.find(kGating);
  if (gating != nullptr && *gating != true && *gating != "per-head") {
    reader.refuse(kGating, "only true and \"per-head\" are served");
  }
}

}  // namespace

checkpoint::SharedKeys step3_keys(ConfigReader& /*reader*/) {
  return {.default_norm_epsilon = 1e-5, .reads_rope = true};
}

void read_step3_config(ConfigReader& reader, ModelConfig& config) {
  Step3Config own;
  refuse_other_settings(reader);
  checkpoint::read_layer_kinds(
      reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention},
      [](int64_t i) {
        return i % 4 == 0 ? LayerKind::kFullAttention : LayerKind::kSlidingAttention;
      },
      /*may_be_longer=*/true);
  checkpoint::read_sliding_window(reader, config, 512);
  read_step3_heads(reader, config, own);
  read_step3_rotation(reader, config);
  read_step3_moe(reader, config, own);
  config.own.set(own);
}

}  // namespace heddle::models
