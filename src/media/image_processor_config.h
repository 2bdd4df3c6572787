// SPDX-License-Identifier: Apache-2.0
// A model's preprocessing, as its files say it: `processor_config.json` with the keys under
// `image_processor`, or else `preprocessor_config.json` with the keys at the root. transformers
// takes them in this order.
//
// Numbers come from the file, never from the habit of a family. A key that is absent has the
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

// The order of patches: row by row, or all of a merged cell before the next cell.
enum class PatchOrder { kRaster, kMergedCells };

// The order of a patch's values: channel, frame, y, x; or y, x, channel.
enum class ValueOrder { kChannelFirst, kChannelLast };

struct ImageProcessorConfig {
  SizeRule size;
  std::optional<PanAndScan> pan_and_scan;
  ResampleFilter filter = ResampleFilter::kBicubic;
  ResampleArithmetic arithmetic = ResampleArithmetic::kTorch;
  Normalisation normalisation;
  int64_t patch = 0;   // pixels of a patch along a side
  int64_t merge = 1;   // patches of a token along a side
  int64_t frames = 1;  // of a patch: a picture fills all of them with the same pixels
  PatchOrder patch_order = PatchOrder::kRaster;
  ValueOrder value_order = ValueOrder::kChannelFirst;
};

// `processor` is processor_config.json's text or empty, `preprocessor` preprocessor_config.json's.
// Error: kNotFound if neither describes an image processor; kUnimplemented for a processor, or a
// value, that Heddle has not; kInvalidArgument or kDataLoss for broken files. Each names the file,
// the key and the value.
Result<ImageProcessorConfig> parse_image_processor_config(std::string_view processor,
                                                          std::string_view preprocessor);

// The same for a model's folder.
Result<ImageProcessorConfig> load_image_processor_config(const std::filesystem::path& folder);

}  // namespace heddle::media
