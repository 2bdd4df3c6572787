// SPDX-License-Identifier: Apache-2.0
#include "models/gemma4/gemma4_config.h"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/layers/expert_config.h"
#include "models/layers/gemma.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

// Without layer_types every sixth layer has full attention; the last layer always has it.
void read_gemma4_layers(ConfigReader& reader, ModelConfig& config) {
  checkpoint::read_layer_kinds(
      reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention}, [](int64_t layer) {
        return (layer + 1) % 6 == 0 ? LayerKind::kFullAttention : LayerKind::kSlidingAttention;
      });
  if (reader.has("layer_types") && config.layer_kinds.back() == LayerKind::kSlidingAttention) {
    reader.note("config.json: the last of layer_types is sliding_attention; it is full_attention");
  }
  config.layer_kinds.back() = LayerKind::kFullAttention;
  checkpoint::read_sliding_window(reader, config, 512);
}

// Reads per_layer_config, in which transformers writes the heads of single layers. Layers of one
// kind must have equal heads.
void read_gemma4_heads_by_layer(ConfigReader& reader, const nlohmann::json& by_layer,
                                const ModelConfig& config, Gemma4Config& own) {
  const Gemma4Heads most = own.sliding;
  std::optional<Gemma4Heads> full, sliding;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    Gemma4Heads heads = most;
    if (const auto found = by_layer.find(std::to_string(i)); found != by_layer.end()) {
      if (!found->is_object()) return reader.fail("per_layer_config", "not a list of objects");
      ConfigReader layer = reader.narrowed({&*found}, /*keep_own=*/false);
      heads = {.head_dim = layer.integer("head_dim", most.head_dim, checkpoint::kHeadDim),
               .num_kv_heads =
                   layer.integer("num_key_value_heads", most.num_kv_heads, checkpoint::kHeads)};
    }
    const bool slides = config.layer_kinds[static_cast<size_t>(i)] == LayerKind::kSlidingAttention;
    std::optional<Gemma4Heads>& kind = slides ? sliding : full;
    if (kind && *kind != heads) {
      return reader.refuse("per_layer_config",
                           fmt::format("layer {} has other heads than those of its kind", i));
    }
    kind = heads;
  }
  own.full = full.value_or(most);
  own.sliding = sliding.value_or(most);
}

void read_gemma4_heads(ConfigReader& reader, ModelConfig& config, Gemma4Config& own) {
  own.keys_are_values = reader.boolean("attention_k_eq_v", false);
  own.sliding = {.head_dim = reader.integer("head_dim", 256, checkpoint::kHeadDim),
                 .num_kv_heads = config.num_key_value_heads};
  const int64_t global_heads =
      reader.integer("num_global_key_value_heads", config.num_key_value_heads, checkpoint::kHeads);
  own.full = {.head_dim = reader.integer("global_head_dim", 512, checkpoint::kHeadDim),
              .num_kv_heads = own.keys_are_values ? global_heads : config.num_key_value_heads};
  if (const nlohmann::json* const by_layer = reader.object("per_layer_config")) {
    read_gemma4_heads_by_layer(reader, *by_layer, config, own);
  }
  config.head_dim = own.sliding.head_dim;
  for (const Gemma4Heads& heads : {own.full, own.sliding}) {
    if (config.num_attention_heads % heads.num_kv_heads == 0) continue;
    reader.fail(
        invalid_argument(fmt::format("{} heads of keys do not divide num_attention_heads = {}",
                                     heads.num_kv_heads, config.num_attention_heads)));
  }
}

// Checks that last layers that reuse keys and values have an earlier layer of their kind.
void read_gemma4_shared_layers(ConfigReader& reader, const ModelConfig& config, Gemma4Config& own) {
  constexpr std::string_view kShared = "num_kv_shared_layers";
  own.num_kv_shared_layers = reader.integer(kShared, 0, {0, config.num_layers - 1});
  own.doubles_shared_mlps = reader.boolean("use_double_wide_mlp", false);
  const auto first = config.layer_kinds.end() - own.num_kv_shared_layers;
  for (auto kind = first; kind != config.layer_kinds.end(); ++kind) {
    if (std::find(config.layer_kinds.begin(), first, *kind) != first) continue;
    return reader.fail(kShared, "but no layer before them is of the same kind as one of them");
  }
}

void read_gemma4_moe(ConfigReader& reader, ModelConfig& config) {
  config.intermediate_size = reader.integer("intermediate_size", std::nullopt, checkpoint::kWidth);
  if (!reader.boolean("enable_moe_block", false)) return;
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), true);
  config.moe = read_experts(reader, {.count = {"num_experts"},
                                     .per_token = {"top_k_experts"},
                                     .width = {"moe_intermediate_size"}});
}

// Refuses unsupported variants. In files that say "vision" only image tokens attend in both
// directions, so text is computed as usual.
void refuse_gemma4_variants(ConfigReader& reader) {
  constexpr std::string_view kBoth = "use_bidirectional_attention";
  const nlohmann::json* const both = reader.find(kBoth);
  if (both != nullptr && *both == "vision") {
    reader.disregard(kBoth);
  } else if (!reader.is_off(kBoth)) {
    reader.refuse(kBoth, "only \"vision\" and false are served");
  }
  if (reader.object("rope_parameters") == nullptr) {
    reader.fail(invalid_argument("rope_parameters is missing"));
  }
}

}  // namespace

void read_gemma4_config(ConfigReader& reader, ModelConfig& config) {
  require_gelu(reader);
  refuse_gemma4_variants(reader);
  Gemma4Config own;
  read_gemma4_layers(reader, config);
  read_gemma4_heads(reader, config, own);
  read_gemma4_shared_layers(reader, config, own);
  read_gemma4_moe(reader, config);
  config.attention_bias = reader.boolean("attention_bias", false);
  config.rope.theta = 1e6;
  config.rope.partial_rotary_factor = 0.25;
  config.sliding_rope = checkpoint::RopeConfig{.theta = 1e4};
  own.per_layer_width =
      reader.integer("hidden_size_per_layer_input", 256, {0, checkpoint::kWidth.high});
  own.per_layer_vocabulary =
      reader.integer("vocab_size_per_layer_input", 262144, checkpoint::kVocabulary);
  own.logit_softcap = reader.number("final_logit_softcapping", 0.0, {0, 1e6});
  config.own.set(own);
}

}  // namespace heddle::models
