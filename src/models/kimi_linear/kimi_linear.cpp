// SPDX-License-Identifier: Apache-2.0
// Kimi-Linear: a hybrid decoder. Three layers of four are Kimi Delta Attention, the others latent
// attention without positions; all feed-forward blocks but the first are mixtures of experts chosen
// by corrected sigmoid scores. Kimi Team, "Kimi Linear", arXiv:2510.26692.
#include <string>
#include <utility>

#include "core/check.h"
#include "models/family.h"
#include "models/kimi_linear/kimi_config.h"
#include "models/kimi_linear/kimi_delta_attention.h"
#include "models/layers/decoder.h"
#include "models/layers/latent_attention.h"
#include "models/layers/linear.h"
#include "models/layers/transformer_layers.h"

namespace heddle::models {

namespace {

// Published files name blocks with experts block_sparse_moe and the others mlp; newer ones use
// either for both.
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

  graph::Value build(graph::GraphBuilder& g, graph::Value x) const override {
    return block_->build(g, x);
  }

 private:
  std::unique_ptr<const FeedForward> block_;
};

std::unique_ptr<const Model> create_kimi_linear(const checkpoint::ModelConfig& config) {
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    DecoderLayer layer;
    if (config.layer_kinds[static_cast<size_t>(i)] == checkpoint::LayerKind::kLinearAttention) {
      layer.mixer = std::make_unique<KimiDeltaAttention>(*config.linear_attention,
                                                         config.hidden_size, config.rms_norm_eps);
    } else {
      layer.mixer = std::make_unique<LatentAttention>(config);
    }
    layer.feed_forward = std::make_unique<EitherName>(make_feed_forward(config, i));
    layers.push_back(std::move(layer));
  }
  return make_decoder(config, {}, std::move(layers));
}

}  // namespace

Family kimi_linear() {
  return {.name = "Kimi-Linear",
          .architectures = {"KimiLinearForCausalLM"},
          .read_config = read_kimi_config,
          .create = create_kimi_linear};
}

}  // namespace heddle::models
