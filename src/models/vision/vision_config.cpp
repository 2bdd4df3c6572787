// SPDX-License-Identifier: Apache-2.0
#include "models/vision/vision_config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;

constexpr ConfigReader::IntegerRange kPatchSide{1, 256};
constexpr ConfigReader::IntegerRange kFew{1, 16};

// Reads the keys that all forms of towers have. `activation`: the only supported hidden_act.
VisionConfig read_tower(ConfigReader& reader, TowerForm form, std::string_view activation) {
  VisionConfig config{
      .form = form,
      .depth = reader.integer("depth", std::nullopt, checkpoint::kLayers),
      .hidden_size = reader.integer("hidden_size", std::nullopt, checkpoint::kWidth),
      .intermediate_size = reader.integer("intermediate_size", std::nullopt, checkpoint::kWidth),
      .num_heads = reader.integer("num_heads", std::nullopt, checkpoint::kHeads),
      .patch = reader.integer("patch_size", form == TowerForm::kTable ? 16 : 14, kPatchSide),
      .merge = reader.integer("spatial_merge_size", 2, kFew),
      .frames = reader.integer("temporal_patch_size", 2, kFew),
      .out_size = reader.integer("out_hidden_size", std::nullopt, checkpoint::kWidth)};
  const std::string_view channels = reader.spelling("in_channels", "in_chans");
  if (reader.integer(channels, 3, kFew) != 3) {
    reader.refuse(channels, "towers are served for pictures of 3 channels");
  }
  if (reader.text("hidden_act", std::string(activation)) != activation) {
    reader.refuse("hidden_act",
                  fmt::format("this kind of tower is served with \"{}\"", activation));
  }
  if (config.hidden_size % config.num_heads != 0) {
    reader.fail("hidden_size",
                fmt::format("which num_heads = {} does not divide", config.num_heads));
  } else if (config.head_dim() % 8 != 0) {
    reader.refuse("num_heads", fmt::format("heads of {} channels; towers are served with heads of "
                                           "a multiple of 8",
                                           config.head_dim()));
  }
  ConfigReader rope = reader.narrowed({reader.object("rope_parameters")}, /*keep_own=*/false);
  config.rope_theta = rope.number("rope_theta", 10000.0, {1.0, 1e9});
  const std::string type = rope.text("rope_type", std::string("axial"));
  if (type != "axial" && type != "default") {
    rope.refuse("rope_type", "towers are served with \"axial\" positions");
  }
  return config;
}

constexpr std::string_view kDeepBlocks = "deepstack_visual_indexes";
constexpr std::string_view kWholeBlocks = "fullatt_block_indexes";

// A file without the list means the default of its family in transformers, which depends on the
// published model: taken for an empty one it would give wrong features.
void demand_blocks(ConfigReader& reader, std::string_view key) {
  if (!reader.has(key)) reader.fail(key, "but must list blocks");
}

// Indices of blocks, which must ascend.
std::vector<int64_t> read_blocks(ConfigReader& reader, std::string_view key,
                                 const VisionConfig& config) {
  std::vector<int64_t> blocks = reader.integers(key, {0, checkpoint::kLayers.high});
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] >= config.depth) {
      reader.fail(key, fmt::format("but depth is {}: blocks are counted from 0", config.depth));
    } else if (i > 0 && blocks[i] <= blocks[i - 1]) {
      reader.fail(key, "where each block must be larger than the one before it");
    }
  }
  return blocks;
}

}  // namespace

VisionConfig read_table_tower(ConfigReader& reader) {
  VisionConfig config = read_tower(reader, TowerForm::kTable, "gelu_pytorch_tanh");
  constexpr std::string_view kTableRows = "num_position_embeddings";
  const int64_t rows = reader.integer(kTableRows, 2304, {1, checkpoint::kWidth.high});
  config.table_side = std::llround(std::sqrt(static_cast<double>(rows)));
  if (config.table_side * config.table_side != rows) {
    reader.fail(kTableRows,
                "which is not the square of a number: the table has a row for each cell "
                "of a square");
  }
  config.deep_blocks = read_blocks(reader, kDeepBlocks, config);
  return config;
}

VisionConfig read_deep_tower(ConfigReader& reader) {
  VisionConfig config = read_table_tower(reader);
  demand_blocks(reader, kDeepBlocks);
  return config;
}

VisionConfig read_window_tower(ConfigReader& reader) {
  VisionConfig config = read_tower(reader, TowerForm::kWindows, "silu");
  constexpr std::string_view kWindow = "window_size";
  const int64_t pixels = reader.integer(kWindow, 112, {1, 1 << 16});
  config.window = std::max<int64_t>(1, pixels / (config.patch * config.merge));
  if (pixels % (config.patch * config.merge) != 0) {
    reader.fail(kWindow, fmt::format("not a multiple of the {} pixels of patch_size times "
                                     "spatial_merge_size",
                                     config.patch * config.merge));
  }
  demand_blocks(reader, kWholeBlocks);
  config.whole_blocks = read_blocks(reader, kWholeBlocks, config);
  return config;
}

}  // namespace heddle::models
