// SPDX-License-Identifier: Apache-2.0
// TableTower: transformer blocks with layer norms and GELU, whose patches get learned positions
// from a table that is resampled to the picture's grid, beside the rotation of queries and keys.
//     x += attn(norm1(x));  x += fc2(gelu(fc1(norm2(x))))
// A merger makes a token of each cell: fc2(erf_gelu(fc1([norm(x_1) | norm(x_2) | ...]))). Some
// blocks may have mergers of their own, whose norm comes after the patches are joined; their
// features are added to the language model's first layers (Meng et al., "DeepStack",
// arXiv:2406.04334).
#pragma once

#include <string>
#include <vector>

#include "models/vision/vision_tower.h"

namespace heddle::models {

class TableTower final : public VisionTower {
 public:
  using VisionTower::VisionTower;

  [[nodiscard]] TowerInputs lay_out(const PatchGrid& grid) const override;

 protected:
  void add_weights(std::vector<checkpoint::WeightSpec>& specs,
                   const std::string& hub) const override;
  graph::Value build_blocks(graph::GraphBuilder& g, graph::Value x,
                            const PatchInputs& inputs) const override;

  [[nodiscard]] bool has_patch_bias() const override { return true; }

 private:
  // The features of a merger [T, out_size], within its scope.
  [[nodiscard]] graph::Value merged(graph::GraphBuilder& g, graph::Value x, bool joins_first) const;
};

}  // namespace heddle::models
