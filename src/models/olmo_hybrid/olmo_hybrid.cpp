// SPDX-License-Identifier: Apache-2.0
// OLMo Hybrid: gated delta networks with norms before their blocks and, in every fourth layer,
// attention with norms after its blocks and norms of whole queries and keys, mostly without
// positions. beta may reach 2 (ops/linear_attention/gated_delta_rule.h). OLMo team, "Olmo Hybrid".
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/layers/decoder.h"
#include "models/layers/gated_delta_net.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

constexpr double kGatedNormEpsilon = 1e-5;  // fixed: the file's epsilon concerns other norms

struct OlmoHybridConfig {
  bool rotates = false;

  bool operator==(const OlmoHybridConfig&) const = default;
};

// Number and width of heads that the file omits follow from those of the attention.
void read_olmo_delta_heads(ConfigReader& reader, ModelConfig& config) {
  using checkpoint::kHeadDim;
  using checkpoint::kHeads;
  checkpoint::LinearAttentionConfig linear;
  const int64_t N = config.num_attention_heads;
  linear.num_key_heads = reader.integer("linear_num_key_heads", N, kHeads);
  linear.num_value_heads = reader.integer("linear_num_value_heads", N, kHeads);
  if (linear.num_value_heads % linear.num_key_heads != 0) {
    reader.fail("linear_num_value_heads",
                fmt::format("not a multiple of linear_num_key_heads = {}", linear.num_key_heads));
  }
  const int64_t width = std::max<int64_t>(3 * config.hidden_size / (4 * linear.num_key_heads), 1);
  linear.key_head_dim = reader.integer("linear_key_head_dim", width, kHeadDim);
  linear.value_head_dim =
      reader.integer("linear_value_head_dim", 2 * linear.key_head_dim, kHeadDim);
  linear.conv_kernel = reader.integer("linear_conv_kernel_dim", 4, checkpoint::kConvolution);
  linear.beta_scale = reader.boolean("linear_allow_neg_eigval", true) ? 2 : 1;
  config.linear_attention = linear;
}

void read_olmo_hybrid_config(ConfigReader& reader, ModelConfig& config) {
  config.attention_bias = reader.boolean("attention_bias", false);
  const int64_t last = config.num_layers - 1;
  checkpoint::read_layer_kinds(
      reader, config, {LayerKind::kLinearAttention, LayerKind::kFullAttention},
      [last](int64_t layer) {
        return layer % 4 == 3 || (last < 3 && layer == last) ? LayerKind::kFullAttention
                                                             : LayerKind::kLinearAttention;
      });
  if (config.num_layers_of(LayerKind::kLinearAttention) > 0) read_olmo_delta_heads(reader, config);
  const ConfigReader rope = reader.narrowed({reader.object("rope_parameters")}, /*keep_own=*/true);
  config.own.set(OlmoHybridConfig{.rotates = rope.has("rope_theta")});
}

// Files of transformers 5 use the same norm name in both kinds of layers, for norms at different
// positions.
std::unique_ptr<const Model> create_olmo_hybrid(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kWhole;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  if (!config.own.get<OlmoHybridConfig>().rotates) attention.rope_table.reset();
  std::vector<DecoderLayer> layers = transformer_layers(config, attention, {.frame = Frame::kPost});
  for (size_t i = 0; i < layers.size(); ++i) {
    if (config.layer_kinds[i] == LayerKind::kLinearAttention) {
      layers[i] = pre_norm_layer(
          std::make_unique<GatedDeltaNet>(*config.linear_attention, config.hidden_size,
                                          kGatedNormEpsilon, DeltaNetTensors::kApart),
          make_feed_forward(config, static_cast<int64_t>(i)));
    }
    layers[i].other_norms = {{"input_layernorm", "attention_layer_norm"},
                             {"post_attention_layernorm", "feedforward_layer_norm"}};
  }
  return make_decoder(config, {}, std::move(layers));
}

}  // namespace

Family olmo_hybrid() {
  return {.name = "OLMo Hybrid",
          .architectures = {"OlmoHybridForCausalLM"},
          .model_types = {{"olmo_hybrid", "OlmoHybridForCausalLM"}},
          .read_config = read_olmo_hybrid_config,
          .create = create_olmo_hybrid};
}

}  // namespace heddle::models
