// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet mixer: the delta rule with one decay per value head (delta_rule_mixer.h), its
// output normalised per head and gated. Yang, Kautz and Hatamizadeh, arXiv:2412.06464.
//     [q; k; v; z; b; a] = W_in x         y = W_out (norm(o) * silu(z))
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/layers/delta_rule_mixer.h"

namespace heddle::models {

class GatedDeltaNet final : public DeltaRuleMixer {
 public:
  using DeltaRuleMixer::DeltaRuleMixer;

  [[nodiscard]] std::string_view scope() const override { return "linear_attn."; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     const CacheLayer& cache) const override;
};

}  // namespace heddle::models
