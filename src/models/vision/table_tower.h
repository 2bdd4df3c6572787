// SPDX-License-Identifier: Apache-2.0
// TableTower: transformer blocks with layer norms and GELU. Patches get learned positions from a
// table, which is resampled to the picture's grid; in addition, queries and keys are rotated.
//     x += attn(norm1(x));  x += fc2(gelu(fc1(norm2(x))))
// A merger turns each cell of patches x_1, x_2, ... into the features of one token:
// fc2(erf_gelu(fc1([norm(x_1) | norm(x_2) | ...]))). Some blocks may have a merger of their own,
// which joins the patches before the norm. These features are added after the first layers of the
// language model (Meng et al., "DeepStack", arXiv:2406.04334).
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
  // Builds the merger in whose scope `g` is, and returns its features [T, out_size]. `joins_first`:
  // it joins the patches of a cell before the norm.
  [[nodiscard]] graph::Value merged(graph::GraphBuilder& g, graph::Value x, bool joins_first) const;
};

}  // namespace heddle::models
