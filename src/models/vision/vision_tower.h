// SPDX-License-Identifier: Apache-2.0
// VisionTower: builds the graph that computes the features of a picture from its patches, one row
// of features for each token of the language model. Like a Model it is independent of the device.
//
// A picture of h x w patches becomes T = h w / merge^2 tokens; T is Symbol::kTokens of the graph.
// The patches are ordered cell by cell (media::PatchOrder::kMergedCells).
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

// The size of a picture in patches; height and width must be multiples of VisionConfig::merge.
struct PatchGrid {
  int64_t height = 0;
  int64_t width = 0;

  [[nodiscard]] int64_t patches() const { return height * width; }
};

// The inputs of the graph that depend only on the size of the picture's grid.
struct TowerInputs {
  // The order of the cells in the graph's input: its cell i is cell cells[i] of the picture. Empty:
  // the order of the picture.
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

  // The weights of the tower; their names in a checkpoint begin with "model.visual." or "visual.".
  [[nodiscard]] std::vector<checkpoint::WeightSpec> weight_specs() const;

  // The first parts of the names of tensors that do not belong to the tower.
  [[nodiscard]] static std::vector<std::string> ignored_prefixes();

  [[nodiscard]] DerivedWeights derive_weights() const;

  // Adds the graph's inputs, the patches [merge^2 T, patch_values()] first, and returns the
  // features [T, feature_width()]. Errors are kept in the builder.
  [[nodiscard]] graph::Value build(graph::GraphBuilder& g) const;

  // Computes the inputs for a picture of this size.
  [[nodiscard]] virtual TowerInputs lay_out(const PatchGrid& grid) const = 0;

 protected:
  // Inputs that all towers have: [merge^2 T, 2] i32 each.
  struct PatchInputs {
    graph::Value positions;  // row and column of each patch
    graph::Value segments;   // one segment: the whole picture (ops/attention/segment_attention.h)
  };

  // Adds the weights of the blocks and mergers. Their names in the checkpoint begin with `hub`.
  virtual void add_weights(std::vector<checkpoint::WeightSpec>& specs,
                           const std::string& hub) const = 0;

  // Builds the tower after the patch embedding, whose result is x [merge^2 T, hidden_size], and
  // returns the features.
  virtual graph::Value build_blocks(graph::GraphBuilder& g, graph::Value x,
                                    const PatchInputs& inputs) const = 0;

  // Whether the patch embedding has a bias.
  [[nodiscard]] virtual bool has_patch_bias() const = 0;

  // The tensors of PatchInputs, the first two of TowerInputs::tensors. `cells` is as in
  // TowerInputs.
  [[nodiscard]] std::vector<Tensor> patch_tensors(const PatchGrid& grid,
                                                  const std::vector<int32_t>& cells) const;

  // The attention of a block, without norm and output projection: x [merge^2 T, hidden_size] -> the
  // same shape.
  [[nodiscard]] graph::Value attend(graph::GraphBuilder& g, graph::Value x, graph::Value positions,
                                    graph::Value segments) const;
  void add_attention_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                             const std::string& hub) const;

  // Adds an input of the graph that has `width` numbers for each patch.
  [[nodiscard]] graph::Value patch_input(graph::GraphBuilder& g, const char* name, DType dtype,
                                         int64_t width) const;

 private:
  VisionConfig config_;
};

// Creates the tower for a configuration from read_table_tower(), read_deep_tower() or
// read_window_tower().
std::unique_ptr<const VisionTower> make_vision_tower(const VisionConfig& config);

}  // namespace heddle::models
