// SPDX-License-Identifier: Apache-2.0
// The two passes of ResampleArithmetic::kTorch (resample.h) in SIMD: bytes by 16-bit weights, sums
// of 32 bits, half of the scale added, shifted and clamped to a byte. Integer sums do not depend on
// their order, so every instruction set gives the same bytes.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <vector>

#include "media/resample.h"

namespace heddle::media {

// AxisWeights in the layout that the passes read: two neighbouring weights in one integer, the
// first in its low half. An odd number of weights is filled up with a 0.
class WeightPairs {
 public:
  // `integers` must be those for ResampleArithmetic::kTorch.
  WeightPairs(const AxisWeights& axis, const IntegerWeights& integers);

  [[nodiscard]] const int32_t* of(int64_t output) const {
    return pairs_.data() + output * pairs_each_;
  }

  [[nodiscard]] int64_t num_outputs() const { return static_cast<int64_t>(axis_.first.size()); }

  [[nodiscard]] int64_t first(int64_t output) const {
    return axis_.first[static_cast<size_t>(output)];
  }

  [[nodiscard]] int64_t count(int64_t output) const {
    return axis_.count[static_cast<size_t>(output)];
  }

  [[nodiscard]] int shift() const { return shift_; }

 private:
  const AxisWeights& axis_;  // must outlive this object
  int shift_;
  int64_t pairs_each_;  // number of pairs per output, even, because the passes read two pairs at a
                        // time
  std::vector<int32_t> pairs_;
};

// Scales each of `height` rows of `width` pixels to pairs.num_outputs() pixels. Returns false
// without writing anything on a processor without AVX2.
[[nodiscard]] bool scale_rows(const uint8_t* rgb, int64_t height, int64_t width,
                              const WeightPairs& pairs, uint8_t* out);

// Scales a picture, whose rows have `row_bytes` bytes, to pairs.num_outputs() rows. Returns false
// without writing anything on a processor without AVX2, or if a row is shorter than a vector.
[[nodiscard]] bool scale_columns(const uint8_t* rgb, int64_t row_bytes, const WeightPairs& pairs,
                                 uint8_t* out);

}  // namespace heddle::media
