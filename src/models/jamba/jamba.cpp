// SPDX-License-Identifier: Apache-2.0
// Jamba: Mamba layers, with attention without positions in every eighth layer, and experts in every
// second layer, weighted by a softmax over all experts. Lieber et al., "Jamba", arXiv:2403.19887;
// Jamba team,
// "Jamba-1.5", arXiv:2408.12570.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/jamba/mamba_mixer.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/model.h"
#include "ops/linear_attention/selective_scan.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

// The layers whose index modulo `period` is `offset`.
struct JambaPeriod {
  int64_t period = 1;
  int64_t offset = 0;

  [[nodiscard]] bool has(int64_t layer) const { return layer % period == offset; }
};

JambaPeriod read_jamba_period(ConfigReader& reader, const std::string& name,
                              const JambaPeriod& fallback) {
  const std::string offset = name + "_offset", period = name + "_period";
  const JambaPeriod periodic{
      .period = reader.integer(period, fallback.period, checkpoint::kLayers),
      .offset = reader.integer(offset, fallback.offset, {0, checkpoint::kLayers.high})};
  if (periodic.offset >= periodic.period) {
    reader.fail(offset, fmt::format("beyond {} = {}", period, periodic.period));
  }
  return periodic;
}

// If a file has a list of layers and a period, checks that they agree. A missing period is not
// checked.
void check_jamba_period(ConfigReader& reader, const ModelConfig& config,
                        const JambaPeriod& attention) {
  for (const char* key : {"attn_layer_period", "attn_layer_offset"}) {
    if (!reader.has(key)) continue;
    for (int64_t i = 0; i < config.num_layers; ++i) {
      const LayerKind kind = config.layer_kinds[static_cast<size_t>(i)];
      if ((kind == LayerKind::kFullAttention) == attention.has(i)) continue;
      reader.fail(key, fmt::format("which contradicts layer {} of {}", i,
                                   reader.spelling("layer_types", "layers_block_type")));
      return;
    }
  }
}

MambaConfig read_jamba_mamba(ConfigReader& reader, const ModelConfig& config) {
  constexpr std::string_view kRank = "mamba_dt_rank";
  const auto* rank = reader.find(kRank);
  const bool automatic = rank == nullptr || (rank->is_string() && *rank == "auto");
  return {.width = config.hidden_size * reader.integer("mamba_expand", 2, {1, 64}),
          .state_size = reader.integer("mamba_d_state", 16, {1, ops::kMaxScanStates}),
          .conv_kernel = reader.integer("mamba_d_conv", 4, {2, 8}),
          .dt_rank = automatic ? (config.hidden_size + 15) / 16
                               : reader.integer(kRank, std::nullopt, checkpoint::kWidth),
          .conv_bias = reader.boolean("mamba_conv_bias", true),
          .proj_bias = reader.boolean("mamba_proj_bias", false)};
}

void read_jamba_config(ConfigReader& reader, ModelConfig& config) {
  const JambaPeriod attention = read_jamba_period(reader, "attn_layer", {.period = 8, .offset = 4});
  checkpoint::read_layer_kinds(
      reader, config, {LayerKind::kLinearAttention, LayerKind::kFullAttention}, [&](int64_t layer) {
        return attention.has(layer) ? LayerKind::kFullAttention : LayerKind::kLinearAttention;
      });
  check_jamba_period(reader, config, attention);
  config.own.set(read_jamba_mamba(reader, config));
  const JambaPeriod experts = read_jamba_period(reader, "expert_layer", {.period = 2, .offset = 1});
  if (reader.integer("num_experts", 16, checkpoint::kExperts) == 1) return;
  for (int64_t i = 0; i < config.num_layers; ++i) config.is_moe_layer.push_back(experts.has(i));
  checkpoint::MoeConfig moe = read_experts(reader, {.count = {"num_experts", 16},
                                                    .per_token = {"num_experts_per_tok", 2},
                                                    .width = {"intermediate_size", 14336}});
  moe.normalize_top_k = false;
  moe.router_name = "router";
  if (config.num_moe_layers() > 0) config.moe = std::move(moe);
}

std::unique_ptr<const Model> create_jamba(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.rope_table.reset();
  std::vector<DecoderLayer> layers = transformer_layers(
      config, attention, {.mlp_scope = "feed_forward.", .moe_scope = "feed_forward."});
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].blocks.back().norm = "pre_ff_layernorm";
    if (config.layer_kinds[i] != LayerKind::kLinearAttention) continue;
    layers[i].blocks.front().branches.front().mixer = std::make_unique<MambaMixer>(
        config.own.get<MambaConfig>(), config.hidden_size, config.rms_norm_eps);
  }
  return make_decoder(config, {.hub_norm = "final_layernorm"}, std::move(layers));
}

}  // namespace

Family jamba() {
  return {.name = "Jamba",
          .architectures = {"JambaForCausalLM"},
          .model_types = {{"jamba", "JambaForCausalLM"}},
          .read_config = read_jamba_config,
          .create = create_jamba};
}

}  // namespace heddle::models
