// SPDX-License-Identifier: Apache-2.0
// Kimi-Linear: a hybrid decoder. Three layers of four are Kimi Delta Attention, the others latent
// attention without positions; all feed-forward blocks but the first are mixtures of experts chosen
// by corrected sigmoid scores. Kimi Team, "Kimi Linear", arXiv:2510.26692.
//
// Kimi-Linear's keys have two generations: as published (linear_attn_config, which counts layers
// from one) and as newer files write them (layer_types, linear_num_heads, mlp_layer_types). If a
// file has both spellings, they must agree. Models that reuse the architecture's name with further
// features are refused by the keys of those features.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"
#include "checkpoint/readable.h"
#include "core/check.h"
#include "models/kimi_linear/kimi_delta_attention.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/layers/feed_forward.h"
#include "models/layers/latent_attention.h"
#include "models/layers/linear.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;
using checkpoint::MoeConfig;

// The lists count layers from one, and each layer must be in exactly one list.
std::vector<LayerKind> kinds_by_lists(ConfigReader& lists, const ModelConfig& config) {
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
    lists.fail(invalid_argument(
        fmt::format("linear_attn_config has layer {} in {} of kda_layers and full_attn_layers",
                    wrong - times.begin() + 1, *wrong)));
  }
  return kinds;
}

void read_kinds(ConfigReader& reader, ConfigReader& linear, ModelConfig& config) {
  const bool has_lists = linear.has("kda_layers") || linear.has("full_attn_layers");
  std::vector<LayerKind> listed;
  if (has_lists) listed = kinds_by_lists(linear, config);
  checkpoint::read_layer_kinds(
      reader, config, {LayerKind::kLinearAttention, LayerKind::kFullAttention}, [&](int64_t layer) {
        if (has_lists) return listed[static_cast<size_t>(layer)];
        return (layer + 1) % 4 == 0 ? LayerKind::kFullAttention : LayerKind::kLinearAttention;
      });
  if (has_lists && config.layer_kinds != listed) {
    reader.fail(invalid_argument("layer_types contradicts linear_attn_config's lists"));
  }
}

void read_delta_attention(ConfigReader& reader, ConfigReader& linear, ModelConfig& config) {
  checkpoint::LinearAttentionConfig delta;
  const bool nested = linear.has("num_heads");
  ConfigReader& source = nested ? linear : reader;
  delta.num_key_heads =
      source.integer(nested ? "num_heads" : "linear_num_heads", std::nullopt, checkpoint::kHeads);
  delta.key_head_dim =
      source.integer(nested ? "head_dim" : "linear_head_dim", std::nullopt, checkpoint::kHeadDim);
  delta.conv_kernel = source.integer(nested ? "short_conv_kernel_size" : "linear_conv_kernel_dim",
                                     4, checkpoint::kConvolution);
  delta.num_value_heads = delta.num_key_heads;
  delta.value_head_dim = delta.key_head_dim;
  if (config.num_layers_of(LayerKind::kLinearAttention) > 0) config.linear_attention = delta;
}

void read_router(ConfigReader& reader, MoeConfig& moe) {
  moe.router = {.sigmoid = true,
                .corrected = true,
                .scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6})};
  read_expert_groups(reader, reader.spelling("num_expert_group", "n_group"), moe);
  moe.normalize_top_k = reader.boolean(reader.spelling("moe_renormalize", "norm_topk_prob"), true);
  const std::string_view score = reader.spelling("moe_router_activation_func", "scoring_func");
  if (reader.text(score, std::string("sigmoid")) != "sigmoid") {
    reader.refuse(score, "only \"sigmoid\" is served");
  }
  if (reader.text("topk_method", std::string("noaux_tc")) != "noaux_tc") {
    reader.refuse("topk_method", "only \"noaux_tc\" is served");
  }
  if (!reader.boolean("use_grouped_topk", true) && moe.router->num_groups > 1) {
    reader.refuse("use_grouped_topk",
                  fmt::format("the {} groups are always used", moe.router->num_groups));
  }
}

MoeConfig read_kimi_moe(ConfigReader& reader) {
  MoeConfig moe = read_experts(
      reader, {.count = {reader.spelling("num_experts", "num_local_experts")},
               .per_token = {reader.spelling("num_experts_per_token", "num_experts_per_tok")},
               .width = {"moe_intermediate_size"}});
  read_shared_experts(reader, reader.spelling("num_shared_experts", "n_shared_experts"), moe);
  read_router(reader, moe);
  return moe;
}

void refuse_relatives(ConfigReader& reader, ConfigReader& linear) {
  constexpr std::string_view kWithout = "Kimi-Linear is served without it";
  for (const char* key : {"gate_lower_bound", "use_full_rank_gate"}) {
    if (!linear.is_off(key)) linear.refuse(key, kWithout);
  }
  for (const char* key : {"mla_use_output_gate", "attn_res_block_size", "routed_expert_hidden_size",
                          "latent_moe_use_norm"}) {
    if (!reader.is_off(key)) reader.refuse(key, kWithout);
  }
  if (!reader.boolean("mla_use_nope", true)) {
    reader.refuse("mla_use_nope",
                  "Kimi-Linear is served without positions; set it to true if the model was "
                  "trained so");
  }
}

void read_kimi_config(ConfigReader& reader, ModelConfig& config) {
  ConfigReader linear = reader.narrowed({reader.object("linear_attn_config")}, /*keep_own=*/false);
  refuse_relatives(reader, linear);
  if (reader.has("model_max_length")) {
    config.max_position_embeddings =
        reader.integer("model_max_length", std::nullopt, checkpoint::kPositions);
  }
  read_latent_attention(reader, config);
  config.latent_attention->rotates = false;
  read_kinds(reader, linear, config);
  read_delta_attention(reader, linear, config);
  read_listed_moe_layers(reader, config, /*default_dense=*/1);
  if (config.num_moe_layers() > 0) config.moe = read_kimi_moe(reader);
}

// A feed-forward block under either of two names. Published files name blocks with experts
// block_sparse_moe and the others mlp; newer ones use one name for all blocks.
class EitherName final : public FeedForward {
 public:
  explicit EitherName(std::unique_ptr<const FeedForward> block) : block_(std::move(block)) {}

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override {
    constexpr std::string_view kMlp = "mlp.";
    HEDDLE_CHECK(hub.ends_with(kMlp));
    std::vector<checkpoint::WeightSpec> as_mlp;
    std::vector<checkpoint::WeightSpec> as_moe;
    block_->add_weights(as_mlp, ours, hub);
    block_->add_weights(as_moe, ours,
                        hub.substr(0, hub.size() - kMlp.size()) + "block_sparse_moe.");
    add_either(specs, std::move(as_mlp), std::move(as_moe));
  }

  [[nodiscard]] bool serves_ranks() const override { return block_->serves_ranks(); }

  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override {
    return block_->build(g, x);
  }

 private:
  std::unique_ptr<const FeedForward> block_;
};

std::unique_ptr<const Model> create_kimi_linear(const checkpoint::ModelConfig& config) {
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    std::unique_ptr<const Mixer> mixer;
    if (config.layer_kinds[static_cast<size_t>(i)] == checkpoint::LayerKind::kLinearAttention) {
      mixer = std::make_unique<KimiDeltaAttention>(*config.linear_attention, config.hidden_size,
                                                   config.rms_norm_eps);
    } else {
      mixer = std::make_unique<LatentAttention>(config);
    }
    layers.push_back(pre_norm_layer(std::move(mixer),
                                    std::make_unique<EitherName>(make_feed_forward(config, i))));
  }
  return make_decoder(config, {}, std::move(layers));
}

}  // namespace

Family kimi_linear() {
  return {.name = "Kimi-Linear",
          .architectures = {"KimiLinearForCausalLM"},
          .model_types = {{"kimi_linear", "KimiLinearForCausalLM"}},
          .read_config = read_kimi_config,
          .create = create_kimi_linear};
}

}  // namespace heddle::models
