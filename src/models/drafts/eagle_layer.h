// SPDX-License-Identifier: Apache-2.0
// EagleLayer: the only layer of EAGLE and EAGLE-3 networks, used for every slot. Its input is `in`;
// h is the residual stream that it adds to:
//
//     x = h + attention(in);   y = x + mlp(norm(x))
//
// Its weights' names begin with kDraftScope.
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
  // `input_size`: width of `in`. `qkv_bias`: biases exist even if config.attention_bias is false.
  EagleLayer(const checkpoint::ModelConfig& config, int64_t input_size, bool qkv_bias);

  // Adds the weights; their hub names begin with `hub`, "midlayer.".
  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& hub) const;

  [[nodiscard]] DerivedWeights derive_weights() const;

  [[nodiscard]] CacheNeeds cache_needs(const std::string& hub) const;

  // Call within kDraftScope. Returns [T, H], computed from `in` [T, input_size] and h [T, H].
  graph::Value build(graph::GraphBuilder& g, graph::Value in, graph::Value h,
                     graph::Value positions) const;

 private:
  checkpoint::ModelConfig config_;
  Attention attention_;
  GatedMlp mlp_;
};

}  // namespace heddle::models
