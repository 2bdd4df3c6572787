// SPDX-License-Identifier: Apache-2.0
// MiMo-V2-Flash: sliding layers with twice as many heads of keys and a sink for each head, values
// narrower than keys and scaled, and experts as in DeepSeek-V3 without a shared one. Xiaomi, "MiMo-
// V2-Flash", arXiv:2601.02780.
#include <cmath>

#include <fmt/format.h>

#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

struct MimoConfig {
  int64_t value_dim = 0;
  int64_t num_sliding_kv_heads = 0;
  double value_scale = 1;

  bool operator==(const MimoConfig&) const = default;
};

// Reads a list with a number for each layer; empty if the file has no such list. Lists may be
// longer than the model: the further entries belong to layers that predict further tokens.
std::vector<int64_t> read_mimo_flags(ConfigReader& reader, const ModelConfig& config,
                                     std::string_view key) {
  std::vector<int64_t> flags = reader.integers(key, {0, 1});
  if (!flags.empty() && std::ssize(flags) < config.num_layers) {
    reader.fail(key, fmt::format("but num_hidden_layers is {}", config.num_layers));
    flags.resize(static_cast<size_t>(config.num_layers));
  }
  return flags;
}

// Reads layer_types or hybrid_layer_pattern, in which 1 means sliding. Without either key, the
// first layer and every sixth layer have full attention.
void read_mimo_layers(ConfigReader& reader, ModelConfig& config) {
  const std::vector<int64_t> pattern = read_mimo_flags(reader, config, "hybrid_layer_pattern");
  checkpoint::read_layer_kinds(
      reader, config, {LayerKind::kFullAttention, LayerKind::kSlidingAttention}, [&](int64_t i) {
        const bool slides =
            pattern.empty() ? i > 0 && (i + 1) % 6 != 0 : pattern[static_cast<size_t>(i)] == 1;
        return slides ? LayerKind::kSlidingAttention : LayerKind::kFullAttention;
      });
  checkpoint::read_sliding_window(reader, config, 128);
  constexpr std::string_view kChunk = "attention_chunk_size";
  if (reader.integer(kChunk, config.sliding_window, checkpoint::kPositions) !=
          config.sliding_window &&
      config.sliding_window > 0) {
    reader.refuse(kChunk, "only the sliding window's size is served");
  }
}

// Refuses sliding layers whose widths or query heads differ from those of full ones.
void require_usual(ConfigReader& reader, std::string_view key, int64_t usual) {
  if (reader.integer(key, usual, checkpoint::kHeadDim) != usual) {
    reader.refuse(key, fmt::format("only {} is served, as in the other layers", usual));
  }
}

void read_mimo_heads(ConfigReader& reader, ModelConfig& config) {
  config.head_dim = reader.integer("head_dim", 192, checkpoint::kHeadDim);
  MimoConfig own;
  own.value_dim = reader.integer("v_head_dim", 128, checkpoint::kHeadDim);
  own.num_sliding_kv_heads =
      reader.integer("swa_num_key_value_heads", 2 * config.num_key_value_heads, checkpoint::kHeads);
  if (config.num_attention_heads % own.num_sliding_kv_heads != 0) {
    reader.fail("swa_num_key_value_heads",
                fmt::format("which does not divide {} heads", config.num_attention_heads));
  }
  own.value_scale = reader.number("attention_value_scale", 0.707, {-1e6, 1e6});
  require_usual(reader, "swa_head_dim", config.head_dim);
  require_usual(reader, "swa_v_head_dim", own.value_dim);
  require_usual(reader, "swa_num_attention_heads", config.num_attention_heads);
  if (!reader.boolean("add_swa_attention_sink_bias", true)) {
    reader.refuse("add_swa_attention_sink_bias", "sliding layers are served with sinks");
  }
  if (reader.boolean("add_full_attention_sink_bias", false)) {
    reader.refuse("add_full_attention_sink_bias", "full layers are served without sinks");
  }
  config.own.set(own);
}

void read_mimo_rotation(ConfigReader& reader, ModelConfig& config) {
  config.rope.theta = 5e6;
  config.rope.partial_rotary_factor = reader.number("partial_rotary_factor", 0.334, {1e-9, 1.0});
  config.sliding_rope = config.rope;
  config.sliding_rope->theta = reader.number("swa_rope_theta", 1e4, {1e-9, 1e12});
}

void read_mimo_moe(ConfigReader& reader, ModelConfig& config) {
  const std::vector<int64_t> frequencies = read_mimo_flags(reader, config, "moe_layer_freq");
  const std::vector<std::string> kinds = reader.texts("mlp_layer_types");
  if (!kinds.empty() && std::ssize(kinds) != config.num_layers) {
    return reader.fail("mlp_layer_types", "not one entry for each layer");
  }
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    const bool sparse = !kinds.empty()         ? kinds[layer] == "sparse"
                        : !frequencies.empty() ? frequencies[layer] == 1
                                               : i > 0;
    config.is_moe_layer.push_back(sparse);
  }
  if (config.num_moe_layers() == 0) return;
  config.moe = read_experts(reader, {.count = {"n_routed_experts"},
                                     .per_token = {"num_experts_per_tok"},
                                     .width = {"moe_intermediate_size"}});
  config.moe->router = {.sigmoid = true,
                        .corrected = true,
                        .scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6})};
  read_expert_groups(reader, "n_group", *config.moe);
  config.moe->normalize_top_k = reader.boolean("norm_topk_prob", true);
  if (reader.text("topk_method", std::string("noaux_tc")) != "noaux_tc") {
    reader.refuse("topk_method", "only \"noaux_tc\" is served");
  }
  if (reader.text("scoring_func", std::string("sigmoid")) != "sigmoid") {
    reader.refuse("scoring_func", "only \"sigmoid\" is served");
  }
}

void read_mimo_v2_config(ConfigReader& reader, ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", false);
  read_mimo_layers(reader, config);
  read_mimo_heads(reader, config);
  read_mimo_rotation(reader, config);
  read_mimo_moe(reader, config);
}

std::unique_ptr<const Model> create_mimo_v2(const ModelConfig& config) {
  const auto& own = config.own.get<MimoConfig>();
  AttentionOptions options = attention_options(config);
  options.value_dim = own.value_dim;
  options.value_scale = own.value_scale;
  options.qkv_bias = config.attention_bias;
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    AttentionOptions attention = in_layer(options, config, i);
    attention.sinks = attention.window > 0;
    if (attention.sinks) attention.num_kv_heads = own.num_sliding_kv_heads;
    layers.push_back(transformer_layer(config, attention, {}, i));
  }
  return make_decoder(config, {.ignored_prefixes = {"model.mtp."}}, std::move(layers));
}

checkpoint::SharedKeys mimo_v2_keys(ConfigReader& reader) {
  return {.norm_epsilon = reader.spelling("rms_norm_eps", "layernorm_epsilon"),
          .default_norm_epsilon = 1e-5};
}

}  // namespace

Family mimo_v2() {
  return {.name = "MiMo-V2",
          .architectures = {"MiMoV2FlashForCausalLM"},
          .model_types = {{"mimo_v2_flash", "MiMoV2FlashForCausalLM"}},
          .shared_keys = mimo_v2_keys,
          .read_config = read_mimo_v2_config,
          .create = create_mimo_v2};
}

}  // namespace heddle::models
