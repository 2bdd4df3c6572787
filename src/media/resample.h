// SPDX-License-Identifier: Apache-2.0
// Scales pictures with antialiasing, first along rows, then along columns. Models were trained with
// one arithmetic, so results must agree with it to the last bit:
//
//   kTorch   torch's kernel for bytes on CPUs: 16-bit weights, and bytes between the passes.
//            transformers 5 uses it for the bicubic filter.
//   kPillow  The same with weights scaled by 2^22. Results differ from kTorch by at most one.
//   kFloat   Floats, rounded half to even once at the end: torch's bilinear filter on most
//            machines. A quarter of the results differs from kTorch by one.
//
// For an axis that goes from n to m pixels, let s = n / m, in double. Output pixel i is the
// weighted mean of the source pixels whose distance from (i + 0.5) s is below support * max(s, 1).
// Their weights are f(distance / max(s, 1)), divided by their sum. f is the cubic convolution with
// a = -0.5 (Keys, "Cubic convolution interpolation for digital image processing", 1981) or the
// triangle filter.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <vector>

#include "media/image.h"

namespace heddle::media {

enum class ResampleFilter { kBilinear, kBicubic };

enum class ResampleArithmetic { kTorch, kPillow, kFloat };

// The weights for one axis. Output i is the sum of weights[i * taps + j] * input[first[i] + j].
struct AxisWeights {
  int64_t taps = 0;             // largest number of weights of an output; unused weights are 0
  std::vector<int64_t> first;   // [m]: the first input pixel
  std::vector<int64_t> count;   // [m]: the number of weights, at most taps
  std::vector<double> weights;  // [m, taps]
};

[[nodiscard]] AxisWeights axis_weights(int64_t n, int64_t m, ResampleFilter filter);

// The weights of AxisWeights as integers, scaled by 2^shift.
struct IntegerWeights {
  int shift = 0;
  std::vector<int32_t> weights;  // [m, taps]
};

[[nodiscard]] IntegerWeights integer_weights(const AxisWeights& axis,
                                             ResampleArithmetic arithmetic);

// Scales a picture; all sides must be at least 1. A side that keeps its length is not filtered.
// Cost: height * new width * taps multiplications, then new height * new width * taps. Memory:
// height * new width pixels in addition to the result.
[[nodiscard]] Image resample(const Image& image, ImageSize size, ResampleFilter filter,
                             ResampleArithmetic arithmetic);

}  // namespace heddle::media
