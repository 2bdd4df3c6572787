// SPDX-License-Identifier: Apache-2.0
// The vision tower of a config.json ("vision_config") as typed, checked values. Family::read_tower
// is the function that reads the towers of a model family.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/config_reader.h"

namespace heddle::models {

enum class TowerForm : uint8_t {
  kTable,    // layer norms, GELU; a table of learned positions in addition to the rotation
  kWindows,  // RMS norms, SwiGLU; most blocks attend within windows of a picture
};

struct VisionConfig {
  TowerForm form = TowerForm::kTable;
  int64_t depth = 0;  // blocks
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t patch = 0;     // side of a patch in pixels
  int64_t merge = 0;     // side of a cell, which becomes one token, in patches
  int64_t frames = 0;    // frames in a patch
  int64_t out_size = 0;  // width of the language model
  double rope_theta = 10000;
  int64_t image_token = -1;  // id of the placeholder in a prompt for a token of a picture

  // kTable
  int64_t table_side = 0;            // side of the square grid whose cells are the table's rows
  std::vector<int64_t> deep_blocks;  // blocks with a merger of their own; the language model adds
                                     // their features after its first layers

  // kWindows
  int64_t window = 0;                 // side of a window in cells
  std::vector<int64_t> whole_blocks;  // blocks that attend to the whole picture; ascending

  [[nodiscard]] int64_t head_dim() const { return hidden_size / num_heads; }

  // The number of patches in a cell.
  [[nodiscard]] int64_t cell() const { return merge * merge; }

  // The number of values of a patch: channels x frames x rows x columns.
  [[nodiscard]] int64_t patch_values() const { return 3 * frames * patch * patch; }

  // The width of a token's features: those that replace its embedding, then those of each of
  // deep_blocks.
  [[nodiscard]] int64_t feature_width() const {
    return out_size * (1 + static_cast<int64_t>(deep_blocks.size()));
  }

  friend bool operator==(const VisionConfig&, const VisionConfig&) = default;
};

// Read the object "vision_config". An error is kept in the reader and names key and value:
// kInvalidArgument for sizes that do not match, kUnimplemented for known values that are not
// supported.
VisionConfig read_table_tower(checkpoint::ConfigReader& reader);

// As read_table_tower(), for families whose towers have deep features: the list of their blocks may
// be empty, but not missing.
VisionConfig read_deep_tower(checkpoint::ConfigReader& reader);

VisionConfig read_window_tower(checkpoint::ConfigReader& reader);

}  // namespace heddle::models
