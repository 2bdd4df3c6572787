// SPDX-License-Identifier: Apache-2.0
// EagleLayer: the layer that networks of EAGLE and EAGLE-3 have, one for all slots. Of `in`, what
// it reads, and h, the residual stream that it continues:
//
//     x = h + attention(in);   y = x + mlp(norm(x))
//
// Its weights are named below kDraftScope.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/drafts/draft_model.h"
#include "models/layers/attention.h"
#include "models/layers/feed_forward.h"

namespace heddle::models {

class EagleLayer {
 public:
  // `input_size`: of `in`. `qkv_bias`: also where config.attention_bias is false.
  EagleLayer(const checkpoint::ModelConfig& config, int64_t input_size, bool qkv_bias);

  // Adds the weights under their names on the hub, below `hub`: "midlayer.".
  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& hub) const;

  [[nodiscard]] DerivedWeights derive_weights() const;

  [[nodiscard]] CacheNeeds cache_needs(const std::string& hub) const;

  // Within kDraftScope. [T, H] of `in` [T, input_size] and h [T, H].
  graph::Value build(graph::GraphBuilder& g, graph::Value in, graph::Value h,
                     graph::Value positions) const;

 private:
  checkpoint::ModelConfig config_;
  Attention attention_;
  GatedMlp mlp_;
};

}  // namespace heddle::models
