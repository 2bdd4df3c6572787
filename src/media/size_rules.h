// SPDX-License-Identifier: Apache-2.0
// To which size a picture is scaled before it is cut into patches. Every rule is the arithmetic of
// one image processor of transformers, in Python's doubles: another order of two divisions changes
// sizes. Rounding is half to even.
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

// The picture is scaled to `content` and filled up with zeros, right and below, to `canvas`.
struct FittedSize {
  ImageSize content;
  ImageSize canvas;

  friend bool operator==(const FittedSize&, const FittedSize&) = default;
};

// Qwen2-VL to Qwen3.5, MiniMax-M3: each side to the nearest multiple of `factor`, then both so that
// the pixels lie within the bounds. Error: kAspectRatio above 200.
struct SmartResize {
  int64_t factor = 0;  // patch times merge
  int64_t min_pixels = 0;
  int64_t max_pixels = 0;
};

// GLM-5 Next: the largest canvas of multiples of `factor` within a budget of tokens, found by a
// binary search over heights; the picture keeps its aspect and is padded.
struct BudgetSearch {
  int64_t factor = 0;
  int64_t frames = 2;  // of a patch; they scale both bounds and the pixels
  int64_t min_tokens = 0;
  int64_t max_tokens = 0;
};

// Kimi K2.5: never enlarged, then padded.
struct NeverEnlarge {
  int64_t patch = 0;
  int64_t merge = 0;
  int64_t max_patches = 0;
  int64_t max_side_patches = 0;
};

// Gemma 4: as many patches as the budget has, at the picture's aspect. Error: kTooSmall where
// rounding leaves no whole token on either side.
struct AreaFit {
  int64_t patch = 0;
  int64_t pool = 0;  // patches of a token along one side
  int64_t max_tokens = 0;
};

// Gemma 3: this size whatever the aspect.
struct FixedSize {
  ImageSize size;
};

// Pixtral, Mistral 3: no side above `longest`, then each up to a multiple of `factor`.
struct LongestEdge {
  int64_t longest = 0;
  int64_t factor = 0;
};

using SizeRule =
    std::variant<SmartResize, BudgetSearch, NeverEnlarge, AreaFit, FixedSize, LongestEdge>;

// Error: kAspectRatio or kTooSmall where the rule finds no size.
MediaResult<FittedSize> fit(const SizeRule& rule, ImageSize picture);

// A part of the picture.
struct Crop {
  int64_t y = 0;
  int64_t x = 0;
  ImageSize size;

  friend bool operator==(const Crop&, const Crop&) = default;
};

// Gemma 3's pan and scan: crops of a picture whose sides differ, beside the whole.
struct PanAndScan {
  int64_t min_crop = 256;
  int64_t max_crops = 4;
  double min_ratio = 1.2;
};

// In order along the longer side; empty where the picture is not cut.
[[nodiscard]] std::vector<Crop> crops_of(const PanAndScan& rule, ImageSize picture);

}  // namespace heddle::media
