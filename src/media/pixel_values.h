// SPDX-License-Identifier: Apache-2.0
// PixelValues: converts the bytes of pixels to the floats that a vision tower reads. It is a table,
// since a channel has only 256 values.
//
// Threading: immutable after construction.
#pragma once

#include <array>
#include <cstdint>

namespace heddle::media {

struct Normalisation {
  bool rescale = true;  // multiply by rescale_factor
  double rescale_factor = 1.0 / 255;
  bool normalise = true;  // then compute (value - mean) / deviation
  std::array<double, 3> mean{};
  std::array<double, 3> deviation{1, 1, 1};
};

// If both steps are on, transformers folds the factor into mean and deviation. The value v of
// channel c then becomes (f32(v) - M) / S with M = f32(mean) * f32(1 / factor) and
// S = f32(deviation) * f32(1 / factor), each operation rounded to float. The divisor must be
// computed in exactly this way: another expression of the same number changes the last bits.
class PixelValues {
 public:
  explicit PixelValues(const Normalisation& normalisation);

  // The result for each of the 256 bytes of channel `c`.
  [[nodiscard]] const std::array<float, 256>& channel(int64_t c) const {
    return table_[static_cast<size_t>(c)];
  }

 private:
  std::array<std::array<float, 256>, 3> table_{};
};

}  // namespace heddle::media
