// SPDX-License-Identifier: Apache-2.0
#include "models/layers/gated_hybrid.h"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"
#include "models/drafts/prediction_head.h"
#include "models/layers/feed_forward.h"
#include "models/layers/gated_delta_net.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

void read_linear_attention(ConfigReader& reader, ModelConfig& config) {
  using checkpoint::kHeadDim;
  using checkpoint::kHeads;
  const checkpoint::LinearAttentionConfig linear{
      .num_key_heads = reader.integer("linear_num_key_heads", 16, kHeads),
      .num_value_heads = reader.integer("linear_num_value_heads", 32, kHeads),
      .key_head_dim = reader.integer("linear_key_head_dim", 128, kHeadDim),
      .value_head_dim = reader.integer("linear_value_head_dim", 128, kHeadDim),
      .conv_kernel = reader.integer("linear_conv_kernel_dim", 4, checkpoint::kConvolution)};
  if (linear.num_value_heads % linear.num_key_heads != 0) {
    reader.fail("linear_num_value_heads",
                fmt::format("not a multiple of linear_num_key_heads = {}", linear.num_key_heads));
  }
  const std::string gate = reader.text("output_gate_type", std::string("silu"));
  if (gate != "silu" && gate != "swish") {
    reader.refuse("output_gate_type", "only \"silu\" is served");
  }
  config.linear_attention = linear;
}

}  // namespace

void read_gated_hybrid(ConfigReader& reader, ModelConfig& config) {
  config.rope.partial_rotary_factor = 0.25;
  if (!reader.boolean("attn_output_gate", true)) {
    reader.refuse("attn_output_gate", fmt::format("{} is served with the gate", config.family));
  }
  require_qk_norm(reader, config);
  constexpr std::string_view kInterval = "full_attention_interval";
  reader.disregard(kInterval);
  const int64_t interval = reader.has("layer_types") ? 1 : reader.interval(kInterval, 4);
  checkpoint::read_layer_kinds(
      reader, config, {LayerKind::kLinearAttention, LayerKind::kFullAttention}, [&](int64_t layer) {
        return (layer + 1) % interval == 0 ? LayerKind::kFullAttention
                                           : LayerKind::kLinearAttention;
      });
  if (config.num_layers_of(LayerKind::kLinearAttention) > 0) read_linear_attention(reader, config);
}

std::vector<DecoderLayer> gated_hybrid_layers(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kHeads;
  attention.qk_norm_offset = 1;
  attention.output_gate = OutputGate::kChannels;

  std::vector<DecoderLayer> layers = transformer_layers(config, attention);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (config.layer_kinds[i] != LayerKind::kLinearAttention) continue;
    layers[i] =
        pre_norm_layer(std::make_unique<GatedDeltaNet>(*config.linear_attention, config.hidden_size,
                                                       config.rms_norm_eps),
                       make_feed_forward(config, static_cast<int64_t>(i)));
  }
  return layers;
}

std::unique_ptr<const DraftModel> gated_hybrid_head(const ModelConfig& config) {
  ModelConfig one = config;
  one.num_layers = 1;
  one.layer_kinds = {LayerKind::kFullAttention};
  one.is_moe_layer = {config.moe.has_value()};
  return make_prediction_head(config,
                              {{.layer = "mtp.layers.0.",
                                .projection = "mtp.fc",
                                .embedding_norm = "mtp.pre_fc_norm_embedding",
                                .hidden_norm = "mtp.pre_fc_norm_hidden",
                                .final_norm = "mtp.norm"}},
                              std::move(gated_hybrid_layers(one).front()), /*norm_offset=*/1);
}

}  // namespace heddle::models
