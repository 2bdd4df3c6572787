// SPDX-License-Identifier: Apache-2.0
// A Mamba layer as in Jamba, with norms on the inputs of the scan. Gu and Dao, "Mamba",
// arXiv:2312.00752; Lieber et al., "Jamba", arXiv:2403.19887.
//     [u; z] = W_in x        u' = silu(conv(u))        [d; B; C] = W_x u'
//     dt = W_dt norm(d)      y = W_out scan(u', dt, norm(B), norm(C), z)
// The scan, with the bias of its time step and its gate, is in
// ops/linear_attention/selective_scan.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/layers/block.h"

namespace heddle::models {

struct MambaConfig {
  int64_t width = 0;       // number of channels in the scan
  int64_t state_size = 0;  // numbers in the state of a channel
  int64_t conv_kernel = 0;
  int64_t dt_rank = 0;
  bool conv_bias = true;
  bool proj_bias = false;  // in_proj and out_proj have biases

  bool operator==(const MambaConfig&) const = default;
};

class MambaMixer final : public Mixer {
 public:
  MambaMixer(const MambaConfig& config, int64_t hidden_size, double epsilon)
      : config_(config), hidden_size_(hidden_size), epsilon_(epsilon) {}

  [[nodiscard]] std::string_view scope() const override { return "mamba."; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  // Derives "neg_exp_a_log" from "A_log".
  void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                      DerivedWeights& derived) const override;
  CacheLayer add_layer(CacheNeeds& needs) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     const CacheLayer& cache) const override;

 private:
  MambaConfig config_;
  int64_t hidden_size_;
  double epsilon_;
};

}  // namespace heddle::models
