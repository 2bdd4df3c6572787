// SPDX-License-Identifier: Apache-2.0
// Bytes of pixels to the floats that a tower reads: a table, since a channel has 256 values.
//
// Threading: immutable after construction.
#pragma once

#include <array>
#include <cstdint>

namespace heddle::media {

struct Normalisation {
  bool rescale = true;  // by the factor
  double rescale_factor = 1.0 / 255;
  bool normalise = true;  // (value - mean) / deviation, of rescaled values
  std::array<double, 3> mean{};
  std::array<double, 3> deviation{1, 1, 1};
};

// With both steps, transformers folds the factor into mean and deviation: then value v of channel c
// becomes (f32(v) - M) / S with M = f32(mean) * f32(1 / factor), S likewise, each operation rounded
// to float. Dividing by another expression of the same number changes the last bits.
class PixelValues {
 public:
  explicit PixelValues(const Normalisation& normalisation);

  // The 256 values of a channel.
  [[nodiscard]] const std::array<float, 256>& channel(int64_t c) const {
    return table_[static_cast<size_t>(c)];
  }

 private:
  std::array<std::array<float, 256>, 3> table_{};
};

}  // namespace heddle::media
