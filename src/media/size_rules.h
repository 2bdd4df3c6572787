// SPDX-License-Identifier: Apache-2.0
// The rules that give the size to which a picture is scaled before it is cut into patches. Each
// rule repeats the arithmetic of one image processor of transformers in Python's doubles: dividing
// in another order would change some sizes. Numbers are rounded half to even.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "media/image.h"
#include "media/media_error.h"

namespace heddle::media {

// The picture is scaled to `content`, then padded with zeros on the right and below to `canvas`.
struct FittedSize {
  ImageSize content;
  ImageSize canvas;

  friend bool operator==(const FittedSize&, const FittedSize&) = default;
};

// Qwen2-VL to Qwen3.5, MiniMax-M3: rounds each side to the nearest multiple of `factor`. If the
// number of pixels is then outside the bounds, the picture is scaled to be within them instead.
// Error: kAspectRatio above 200.
struct SmartResize {
  int64_t factor = 0;  // side of a patch in pixels, times merge
  int64_t min_pixels = 0;
  int64_t max_pixels = 0;
};

// GLM-5 Next: finds the largest canvas of multiples of `factor` within a budget of tokens by a
// binary search over heights. The picture keeps its aspect ratio and is padded.
struct BudgetSearch {
  int64_t factor = 0;
  // The number of frames in a patch. Both bounds and the pixels are multiplied by it.
  int64_t frames = 2;
  int64_t min_tokens = 0;
  int64_t max_tokens = 0;
};

// Kimi K2.5: scales down to the limits but never up, then pads.
struct NeverEnlarge {
  int64_t patch = 0;
  int64_t merge = 0;
  int64_t max_patches = 0;
  int64_t max_side_patches = 0;
};

// Gemma 4: uses as many patches as the budget allows at the picture's aspect ratio. Error:
// kTooSmall if rounding leaves no whole token on either side.
struct AreaFit {
  int64_t patch = 0;
  int64_t pool = 0;  // patches per token along each side
  int64_t max_tokens = 0;
};

// Gemma 3: scales to this size, whatever the aspect ratio.
struct FixedSize {
  ImageSize size;
};

// Pixtral, Mistral 3: scales down until no side is above `longest`, then rounds each side up to a
// multiple of `factor`.
struct LongestEdge {
  int64_t longest = 0;
  int64_t factor = 0;
};

using SizeRule =
    std::variant<SmartResize, BudgetSearch, NeverEnlarge, AreaFit, FixedSize, LongestEdge>;

// Error: kAspectRatio or kTooSmall if the rule gives no size for the picture.
MediaResult<FittedSize> fit(const SizeRule& rule, ImageSize picture);

// A rectangle of the picture.
struct Crop {
  int64_t y = 0;
  int64_t x = 0;
  ImageSize size;

  friend bool operator==(const Crop&, const Crop&) = default;
};

// Gemma 3's pan and scan: a long picture is passed to the model whole, and also as crops.
struct PanAndScan {
  int64_t min_crop = 256;
  int64_t max_crops = 4;
  double min_ratio = 1.2;
};

// The crops in order along the longer side; empty if the picture is not cut.
[[nodiscard]] std::vector<Crop> crops_of(const PanAndScan& rule, ImageSize picture);

}  // namespace heddle::media
