// SPDX-License-Identifier: Apache-2.0
// A gated short convolution. The layer's state is the last W - 1 products p.
//     [b; c; x'] = W_in x        p = b * x'        y = W_out (c * conv(p))      without activations
// Liquid AI, "LFM2 Technical Report", arXiv:2511.23404.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/layers/block.h"

namespace heddle::models {

class ShortConvolution final : public Mixer {
 public:
  // `bias`: both products and the convolution have biases.
  ShortConvolution(int64_t hidden_size, int64_t conv_width, bool bias)
      : hidden_size_(hidden_size), conv_width_(conv_width), bias_(bias) {}

  [[nodiscard]] std::string_view scope() const override { return "conv."; }

  void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override;
  CacheLayer add_layer(CacheNeeds& needs) const override;
  graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                     const CacheLayer& cache) const override;

 private:
  int64_t hidden_size_;
  int64_t conv_width_;
  bool bias_;
};

}  // namespace heddle::models
