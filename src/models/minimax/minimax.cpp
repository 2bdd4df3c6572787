// SPDX-License-Identifier: Apache-2.0
// MiniMax-Text-01 and MiniMax-M1: lightning attention, with softmax attention every few layers,
// experts in every layer, and blocks whose residual is their normalised input. MiniMax,
// "MiniMax-01", arXiv:2501.08313. Two generations of files spell the layers' kinds and the factors
// differently.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/minimax/lightning_attention.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

// x' = alpha norm(x) + beta F(norm(x))
struct MiniMaxFactors {
  double alpha = 1;
  double beta = 1;

  bool operator==(const MiniMaxFactors&) const = default;
};

struct MiniMaxConfig {
  MiniMaxFactors full, linear, mlp;

  bool operator==(const MiniMaxConfig&) const = default;
};

double read_minimax_factor(ConfigReader& reader, const std::string& key,
                           const std::string& old_key) {
  constexpr ConfigReader::NumberRange kRange{-1e6, 1e6};
  const double factor = reader.number(key, reader.number(old_key, 1.0, kRange), kRange);
  if (reader.has(old_key) && reader.number(old_key, 1.0, kRange) != factor) {
    reader.fail(old_key, fmt::format("but {} is {:g}", key, factor));
  }
  return factor;
}

MiniMaxFactors read_minimax_factors(ConfigReader& reader, std::string_view name,
                                    std::string_view old_name) {
  const auto factor = [&](const char* letter) {
    return read_minimax_factor(reader, fmt::format("{}_{}_factor", name, letter),
                               fmt::format("layernorm_{}_{}", old_name, letter));
  };
  return {.alpha = factor("alpha"), .beta = factor("beta")};
}

// Reads layer_types or, in older files, attn_type_list: 0 is linear, 1 full attention.
void read_minimax_layers(ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kList = "attn_type_list";
  const std::vector<int64_t> types = reader.integers(kList, {0, 1});
  if (reader.has(kList) && std::ssize(types) != config.num_layers) {
    reader.fail(kList, fmt::format("but num_hidden_layers is {}", config.num_layers));
  }
  std::vector<LayerKind> listed;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool is_full = at < types.size() ? types[at] == 1 : i % 2 == 0;
    listed.push_back(is_full ? LayerKind::kFullAttention : LayerKind::kLinearAttention);
  }
  checkpoint::read_layer_kinds(reader, config,
                               {LayerKind::kLinearAttention, LayerKind::kFullAttention},
                               [&](int64_t layer) { return listed[static_cast<size_t>(layer)]; });
  if (reader.has(kList) && config.layer_kinds != listed) {
    reader.fail(kList, "which contradicts layer_types");
  }
}

void read_minimax_config(ConfigReader& reader, ModelConfig& config) {
  config.rope.theta = 1e6;
  if (!reader.boolean("postnorm", true)) {
    reader.refuse("postnorm", "MiniMax-Text is served with blocks that add to their normed input");
  }
  read_minimax_layers(reader, config);
  checkpoint::read_rotary_dim(reader, config);
  config.own.set(
      MiniMaxConfig{.full = read_minimax_factors(reader, "full_attn", "full_attention"),
                    .linear = read_minimax_factors(reader, "linear_attn", "linear_attention"),
                    .mlp = read_minimax_factors(reader, "mlp", "mlp")});
  if (config.num_layers_of(LayerKind::kLinearAttention) > 0) {
    const int64_t D = reader.integer(
        "head_dim", std::max<int64_t>(config.hidden_size / config.num_attention_heads, 1),
        checkpoint::kHeadDim);
    config.linear_attention = {.num_key_heads = config.num_attention_heads,
                               .num_value_heads = config.num_attention_heads,
                               .key_head_dim = D,
                               .value_head_dim = D};
  }
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), true);
  config.moe = read_experts(reader, {.count = {"num_local_experts", 8},
                                     .per_token = {"num_experts_per_tok", 2},
                                     .width = {"intermediate_size", 14336}});
}

void set_minimax_factors(ResidualBlock& block, const MiniMaxFactors& factors) {
  block.keeps_normed = true;
  block.keep = factors.alpha;
  block.scale = factors.beta;
}

std::unique_ptr<const Model> create_minimax(const ModelConfig& config) {
  const auto& own = config.own.get<MiniMaxConfig>();
  std::vector<DecoderLayer> layers =
      transformer_layers(config, attention_options(config), {.moe_scope = "block_sparse_moe."});
  std::vector<std::string> buffers;  // names of stored buffers, which files of transformers 5
                                     // contain
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool is_linear = config.layer_kinds[i] == LayerKind::kLinearAttention;
    set_minimax_factors(layers[i].blocks.front(), is_linear ? own.linear : own.full);
    set_minimax_factors(layers[i].blocks.back(), own.mlp);
    if (!is_linear) continue;
    layers[i].blocks.front().branches.front().mixer = std::make_unique<LightningAttention>(
        config.hidden_size, config.num_attention_heads, config.linear_attention->key_head_dim,
        static_cast<int64_t>(i), config.num_layers);
    for (const char* name : {"slope_rate", "query_decay", "key_decay", "diagonal_decay"}) {
      buffers.push_back(fmt::format("model.layers.{}.self_attn.{}", i, name));
    }
  }
  return make_decoder(config, {.ignored_prefixes = std::move(buffers)}, std::move(layers));
}

checkpoint::SharedKeys minimax_keys(ConfigReader& /*reader*/) {
  return {.default_norm_epsilon = 1e-5};
}

}  // namespace

Family minimax() {
  return {
      .name = "MiniMax-Text",
      .architectures = {"MiniMaxForCausalLM", "MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"},
      .model_types = {{"minimax", "MiniMaxForCausalLM"},
                      {"minimax_text_01", "MiniMaxText01ForCausalLM"},
                      {"minimax_m1", "MiniMaxM1ForCausalLM"}},
      .shared_keys = minimax_keys,
      .read_config = read_minimax_config,
      .create = create_minimax};
}

}  // namespace heddle::models
