// SPDX-License-Identifier: Apache-2.0
// Falcon-H1: every layer adds attention and Mamba-2 of the same normed input, and nearly every
// product has a factor (maximal update parametrisation). TII, "Falcon-H1", arXiv:2507.22448.
//     h = x + s Mamba(norm(x)) + a Attention(norm(x));   x' = h + m MLP(norm(h))
#include <algorithm>
#include <array>

#include "models/layers/decoder.h"
#include "models/layers/mamba2.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::ModelConfig;

struct FalconH1Config {
  Mamba2Config mamba;
  Mamba2Norm norm = Mamba2Norm::kNone;
  std::array<double, 5> ssm = {1, 1, 1, 1, 1};  // multipliers of z, x, B, C and dt
  double embedding = 1, head = 1;
  double attention_in = 1, attention_out = 1, key = 1;
  double ssm_in = 1, ssm_out = 1;
  double gate = 1, down = 1;

  bool operator==(const FalconH1Config&) const = default;
};

void read_falcon_h1_config(ConfigReader& reader, ModelConfig& config) {
  constexpr ConfigReader::NumberRange kFactors{-1e6, 1e6};
  const auto factor = [&](const char* key) { return reader.number(key, 1.0, kFactors); };
  FalconH1Config own{.mamba = read_mamba2(reader, config, "mamba_d_ssm"),
                     .embedding = factor("embedding_multiplier"),
                     .head = factor("lm_head_multiplier"),
                     .attention_in = factor("attention_in_multiplier"),
                     .attention_out = factor("attention_out_multiplier"),
                     .key = factor("key_multiplier"),
                     .ssm_in = factor("ssm_in_multiplier"),
                     .ssm_out = factor("ssm_out_multiplier")};
  own.mamba.out_bias = reader.boolean("projectors_bias", false);
  if (own.mamba.in_bias && own.ssm_in != 1) {
    reader.refuse("mamba_proj_bias", "only without it, where ssm_in_multiplier is not 1");
  }
  const std::vector<double> ssm = reader.numbers("ssm_multipliers", {1, 1, 1, 1, 1}, kFactors);
  std::ranges::copy(ssm, own.ssm.begin());
  const std::vector<double> mlp = reader.numbers("mlp_multipliers", {1, 1}, kFactors);
  own.gate = mlp[0];
  own.down = mlp[1];
  const bool norm_first = reader.boolean("mamba_norm_before_gate", true);
  if (reader.boolean("mamba_rms_norm", false)) {
    own.norm = norm_first ? Mamba2Norm::kGroupsNormFirst : Mamba2Norm::kGroupsGateFirst;
  }
  config.own.set(own);
}

DecoderLayer falcon_h1_layer(const ModelConfig& config, const FalconH1Config& own) {
  AttentionOptions attention = attention_options(config);
  // The factor on the attention's input multiplies queries, keys and values alike: it is squared in
  // the scores, and once in the output.
  attention.softmax_scale *= own.key * own.attention_in * own.attention_in;
  Mamba2Options mamba{.norm = own.norm, .epsilon = config.rms_norm_eps, .factors = own.ssm};
  for (double& factor : mamba.factors) factor *= own.ssm_in;
  ResidualBlock mixers{.norm = "input_layernorm"};
  mixers.branches.push_back(
      {.mixer = std::make_unique<Mamba2>(own.mamba, config.hidden_size, mamba),
       .scale = own.ssm_out});
  mixers.branches.push_back({.mixer = std::make_unique<Attention>(attention),
                             .scale = own.attention_out * own.attention_in});
  ResidualBlock feed_forward{.norm = "pre_ff_layernorm"};
  feed_forward.branches.push_back(
      {.feed_forward = std::make_unique<GatedMlp>(config.hidden_size, config.intermediate_size,
                                                  MlpOptions{.gate_scale = own.gate}),
       .scale = own.down,
       .hub_scope = "feed_forward."});
  DecoderLayer layer;
  layer.blocks.push_back(std::move(mixers));
  layer.blocks.push_back(std::move(feed_forward));
  return layer;
}

std::unique_ptr<const Model> create_falcon_h1(const ModelConfig& config) {
  const auto& own = config.own.get<FalconH1Config>();
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) layers.push_back(falcon_h1_layer(config, own));
  return make_decoder(
      config,
      {.hub_norm = "final_layernorm", .embedding_scale = own.embedding, .logit_scale = own.head},
      std::move(layers));
}

}  // namespace

Family falcon_h1() {
  return {.name = "Falcon-H1",
          .architectures = {"FalconH1ForCausalLM"},
          .model_types = {{"falcon_h1", "FalconH1ForCausalLM"}},
          .read_config = read_falcon_h1_config,
          .create = create_falcon_h1};
}

}  // namespace heddle::models
