// SPDX-License-Identifier: Apache-2.0
// The base of mixers with a delta rule: a short causal convolution over queries, keys and values,
// then a recurrence over one matrix S [Dk, Dv] per value head, whose decay comes from A_log.
// Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464.
//     S <- exp(g) S       S <- S + k (beta (v - S'k))'       o = S'q,      beta = s sigmoid(b)
//     g = -exp(A_log) softplus(a + dt_bias)       one per value head, or per key channel of a head
// with s = 1, or 2 if the config says so. A derived mixer computes q, k, v, a and b and processes
// o.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/block.h"

namespace heddle::models {

// Adds the weight "neg_exp_a_log", -exp of "A_log"; `ours` is the prefix of both names.
void derive_decays(const checkpoint::LoadedWeights& weights, const std::string& ours,
                   DerivedWeights& derived);

class DeltaRuleMixer : public Mixer {
 public:
  DeltaRuleMixer(const checkpoint::LinearAttentionConfig& config, int64_t hidden_size,
                 double epsilon)
      : config_(config), hidden_size_(hidden_size), epsilon_(epsilon) {}

  [[nodiscard]] bool serves_ranks() const final { return true; }

  // "neg_exp_a_log" from "A_log".
  void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                      DerivedWeights& derived) const final;
  CacheLayer add_layer(CacheNeeds& needs) const final;

 protected:
  // Queries, keys and values before the convolution [T, conv_channels], a [T, Nv] or [T, Nk * Dk],
  // b [T, Nv] -> o [T, Nv * Dv], all with the heads of the builder's rank.
  graph::Value delta_rule(graph::GraphBuilder& g, graph::Value qkv, graph::Value a, graph::Value b,
                          const CacheLayer& cache) const;

  // Adds "A_log" [Nv], which may be stored in any of `shapes`, and "dt_bias" [dt.size].
  void add_decay_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                         const std::string& hub, const std::vector<Shape>& a_log_shapes,
                         const checkpoint::CutPart& dt) const;

  // Number of channels in the convolution: queries, keys and values.
  [[nodiscard]] int64_t conv_channels() const {
    return 2 * config_.key_width() + config_.value_width();
  }

  // How ranks cut tensors that are as wide as all queries, as all values, or that have one number
  // per value head. Each rank has a share of the value heads, and the key heads that those read;
  // several ranks may have copies of a key head.
  [[nodiscard]] checkpoint::CutPart queries() const {
    return {config_.key_width(), config_.key_head_dim, checkpoint::PartCut::kCopied};
  }

  [[nodiscard]] checkpoint::CutPart values() const {
    return {config_.value_width(), config_.value_head_dim};
  }

  [[nodiscard]] checkpoint::CutPart per_value_head() const { return {config_.num_value_heads}; }

  // The same layer with the heads that a rank has.
  [[nodiscard]] checkpoint::LinearAttentionConfig own_config(const checkpoint::Rank& rank) const;

  checkpoint::LinearAttentionConfig config_;
  int64_t hidden_size_;
  double epsilon_;
};

}  // namespace heddle::models
