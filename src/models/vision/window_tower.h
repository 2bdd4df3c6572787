// SPDX-License-Identifier: Apache-2.0
// WindowTower: transformer blocks with RMS norms and SwiGLU. In most blocks a patch attends only to
// its window of the picture. The input has its cells ordered window by window, so that each window
// is a segment; the features are in the picture's order.
//     x += attn(norm1(x));  x += down(silu(gate(norm2(x))) * up(norm2(x)))
// Bai et al., "Qwen2.5-VL Technical Report", arXiv:2502.13923.
#pragma once

#include <string>
#include <vector>

#include "models/vision/vision_tower.h"

namespace heddle::models {

class WindowTower final : public VisionTower {
 public:
  using VisionTower::VisionTower;

  [[nodiscard]] TowerInputs lay_out(const PatchGrid& grid) const override;

 protected:
  void add_weights(std::vector<checkpoint::WeightSpec>& specs,
                   const std::string& hub) const override;
  graph::Value build_blocks(graph::GraphBuilder& g, graph::Value x,
                            const PatchInputs& inputs) const override;

  [[nodiscard]] bool has_patch_bias() const override { return false; }
};

}  // namespace heddle::models
