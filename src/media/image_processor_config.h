// SPDX-License-Identifier: Apache-2.0
// Reads a model's image preprocessing from its files: from `processor_config.json`, with the keys
// under `image_processor`, or else from `preprocessor_config.json`, with the keys at the root.
// transformers uses the same order.
//
// Numbers come from the file and are never assumed from the model's family. An absent key has the
// default of the processor's class.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include <heddle/status.h>

#include "media/pixel_values.h"
#include "media/resample.h"
#include "media/size_rules.h"

namespace heddle::media {

// The order of patches: row by row, or all patches of a merged cell before those of the next cell.
enum class PatchOrder { kRaster, kMergedCells };

// The order of the values in a patch: channel, frame, y, x; or y, x, channel.
enum class ValueOrder { kChannelFirst, kChannelLast };

struct ImageProcessorConfig {
  SizeRule size;
  std::optional<PanAndScan> pan_and_scan;
  ResampleFilter filter = ResampleFilter::kBicubic;
  ResampleArithmetic arithmetic = ResampleArithmetic::kTorch;
  Normalisation normalisation;
  int64_t patch = 0;   // width and height of a patch in pixels
  int64_t merge = 1;   // patches that a token covers along each side
  int64_t frames = 1;  // frames in a patch; a still picture repeats its pixels in all of them
  PatchOrder patch_order = PatchOrder::kRaster;
  ValueOrder value_order = ValueOrder::kChannelFirst;
};

// `processor` is the text of processor_config.json, or empty; `preprocessor` that of
// preprocessor_config.json. Error: kNotFound if neither describes an image processor;
// kUnimplemented for a processor or a value that Heddle does not support; kInvalidArgument or
// kDataLoss for broken files. Each message names the file, the key and the value.
Result<ImageProcessorConfig> parse_image_processor_config(std::string_view processor,
                                                          std::string_view preprocessor);

// Reads both files from a model's folder.
Result<ImageProcessorConfig> load_image_processor_config(const std::filesystem::path& folder);

}  // namespace heddle::media
