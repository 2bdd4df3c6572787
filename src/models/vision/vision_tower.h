// SPDX-License-Identifier: Apache-2.0
// VisionTower: a picture's patches to rows of features, one a token of the language model, as a
// graph of the same ops. Like a Model it knows tensors and no device.
//
// A picture of h x w patches becomes T = h w / merge^2 tokens: Symbol::kTokens of the graph. Its
// patches come cell by cell (media::PatchOrder::kMergedCells).
//
// Threading: immutable after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/weight_map.h"
#include "graph/builder.h"
#include "models/model.h"
#include "models/vision/vision_config.h"

namespace heddle::models {

// Patches from top to bottom and from left to right; each a multiple of VisionConfig::merge.
struct PatchGrid {
  int64_t height = 0;
  int64_t width = 0;

  [[nodiscard]] int64_t patches() const { return height * width; }
};

// The inputs of the graph for a picture, which follow from the size of its grid.
struct TowerInputs {
  // The order in which cells enter: row i of cells is cell cells[i] of the picture. Empty: as they
  // are.
  std::vector<int32_t> cells;
  std::vector<Tensor> tensors;  // the graph's inputs after the patches, in order
};

class VisionTower {
 public:
  explicit VisionTower(VisionConfig config) : config_(std::move(config)) {}

  virtual ~VisionTower() = default;
  VisionTower(const VisionTower&) = delete;
  VisionTower& operator=(const VisionTower&) = delete;

  [[nodiscard]] const VisionConfig& config() const { return config_; }

  // Below "model.visual." or "visual." of a checkpoint.
  [[nodiscard]] std::vector<checkpoint::WeightSpec> weight_specs() const;

  // Tensors of a checkpoint that are not the tower's, by the beginnings of their names.
  [[nodiscard]] static std::vector<std::string> ignored_prefixes();

  [[nodiscard]] DerivedWeights derive_weights() const;

  // Adds the graph's inputs, the patches [merge^2 T, patch_values()] first, and gives the features
  // [T, feature_width()]. Errors stay in the builder.
  [[nodiscard]] graph::Value build(graph::GraphBuilder& g) const;

  [[nodiscard]] virtual TowerInputs lay_out(const PatchGrid& grid) const = 0;

 protected:
  // Inputs that all towers have: [merge^2 T, 2] i32 each.
  struct PatchInputs {
    graph::Value positions;  // row and column of each patch
    graph::Value segments;   // the picture, as ops/attention/segment_attention.h has segments
  };

  // The weights of the tower, whose names begin with `hub`.
  virtual void add_weights(std::vector<checkpoint::WeightSpec>& specs,
                           const std::string& hub) const = 0;

  // From the patches after their product, x [merge^2 T, hidden_size].
  virtual graph::Value build_blocks(graph::GraphBuilder& g, graph::Value x,
                                    const PatchInputs& inputs) const = 0;

  // Whether the product of patches has a bias.
  [[nodiscard]] virtual bool has_patch_bias() const = 0;

  // The first two of TowerInputs::tensors, for cells in this order.
  [[nodiscard]] std::vector<Tensor> patch_tensors(const PatchGrid& grid,
                                                  const std::vector<int32_t>& cells) const;

  // The attention of a block: x [merge^2 T, hidden_size] after its norm -> the same.
  [[nodiscard]] graph::Value attend(graph::GraphBuilder& g, graph::Value x, graph::Value positions,
                                    graph::Value segments) const;
  void add_attention_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                             const std::string& hub) const;

  // An input of `width` numbers a patch.
  [[nodiscard]] graph::Value patch_input(graph::GraphBuilder& g, const char* name, DType dtype,
                                         int64_t width) const;

 private:
  VisionConfig config_;
};

// The tower of a configuration that read_table_tower() or read_window_tower() gave.
std::unique_ptr<const VisionTower> make_vision_tower(const VisionConfig& config);

}  // namespace heddle::models
