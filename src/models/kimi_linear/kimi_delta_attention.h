// SPDX-License-Identifier: Apache-2.0
// Kimi Delta Attention: the delta rule with one decay per key channel (layers/delta_rule_mixer.h).
// Decay and output gate come from low-rank products.
//     a = W_fb W_fa x,  b = W_b x         y = W_o (norm(o) * sigmoid(W_gb W_ga x))
// Kimi Team, "Kimi Linear", arXiv:2510.26692. There are as many key heads as value heads, of the
// same width.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/layers/delta_rule_mixer.h"

namespace heddle::models {

class KimiDeltaAttention final : public DeltaRuleMixer {
 public:
  using DeltaRuleMixer::DeltaRuleMixer;

  [[nodiscard]] std::string_view scope() const override { return "self_attn."; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     const CacheLayer& cache) const override;

 private:
  // Number of heads times head width: the channels of each of q, k, v and the two gates.
  [[nodiscard]] int64_t width() const { return config_.key_width(); }
};

}  // namespace heddle::models
