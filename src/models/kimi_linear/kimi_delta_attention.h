// SPDX-License-Identifier: Apache-2.0
// Kimi Delta Attention: a gated delta network whose state forgets by key channel.
//     q, k, v = silu(conv(W_q x)), silu(conv(W_k x)), silu(conv(W_v x))
//     g = -exp(A_log) softplus(W_fb W_fa x + dt_bias)      one per head and key channel
//     S <- diag(exp(g)) S     S <- S + k (beta (v - S'k))'     o = S'q,   beta = sigmoid(W_b x)
//     y = W_o (norm(o) * sigmoid(W_gb W_ga x))
// Kimi Team, "Kimi Linear", arXiv:2510.26692. There are as many key heads as value heads, of the
// same width.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

class KimiDeltaAttention final : public Mixer {
 public:
  KimiDeltaAttention(const checkpoint::LinearAttentionConfig& config, int64_t hidden_size,
                     double epsilon)
      : config_(config), hidden_size_(hidden_size), epsilon_(epsilon) {}

  [[nodiscard]] std::string_view scope() const override { return "self_attn."; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                      DerivedWeights& derived) const override;
  int64_t add_layer(CacheNeeds& needs) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     int64_t cache_layer) const override;

 private:
  // Heads times width: channels of q, k and v, and of both gates.
  [[nodiscard]] int64_t width() const { return config_.key_width(); }

  checkpoint::LinearAttentionConfig config_;
  int64_t hidden_size_;
  double epsilon_;
};

}  // namespace heddle::models
