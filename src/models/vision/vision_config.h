// SPDX-License-Identifier: Apache-2.0
// The vision tower of a config.json ("vision_config") as typed, checked values. A family names the
// reader of its towers (Family::read_tower).
//
// Threading: values.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/config_reader.h"

namespace heddle::models {

enum class TowerForm : uint8_t {
  kTable,    // layer norms, GELU, a table of learned positions beside the rotation
  kWindows,  // RMS norms, SwiGLU; most blocks attend within windows of a picture
};

struct VisionConfig {
  TowerForm form = TowerForm::kTable;
  int64_t depth = 0;  // blocks
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t patch = 0;     // pixels along a side
  int64_t merge = 0;     // patches along a side of the cell that becomes one token
  int64_t frames = 0;    // frames in a patch
  int64_t out_size = 0;  // width of the language model
  double rope_theta = 10000;
  int64_t image_token = -1;  // the id in whose place a token of a picture stands

  // kTable
  int64_t table_side = 0;            // the table has a row for each cell of this square
  std::vector<int64_t> deep_blocks;  // after these blocks the patches give features of their own,
                                     // which the language model adds after its first layers

  // kWindows
  int64_t window = 0;                 // merged cells along a side
  std::vector<int64_t> whole_blocks;  // blocks that attend to the whole picture; ascending

  [[nodiscard]] int64_t head_dim() const { return hidden_size / num_heads; }

  // Patches of a merged cell.
  [[nodiscard]] int64_t cell() const { return merge * merge; }

  // Values of a patch: channels, frames, rows, columns.
  [[nodiscard]] int64_t patch_values() const { return 3 * frames * patch * patch; }

  // Width of the features of a token: for the embedding, then for each of deep_blocks.
  [[nodiscard]] int64_t feature_width() const {
    return out_size * (1 + static_cast<int64_t>(deep_blocks.size()));
  }

  friend bool operator==(const VisionConfig&, const VisionConfig&) = default;
};

// Each reads the object "vision_config". Errors stay in the reader: kInvalidArgument for sizes that
// do not fit each other, kUnimplemented for a known value that is not served; with key and value.
VisionConfig read_table_tower(checkpoint::ConfigReader& reader);

// As read_table_tower(), for families whose towers have deep features: the list of their blocks may
// be empty, but not missing.
VisionConfig read_deep_tower(checkpoint::ConfigReader& reader);

VisionConfig read_window_tower(checkpoint::ConfigReader& reader);

}  // namespace heddle::models
