// SPDX-License-Identifier: Apache-2.0
// Scaling of pictures with antialiasing, rows first, then columns. The arithmetic is a part of a
// model's preprocessing, down to the last bit:
//
//   kTorch   torch's kernel for bytes on CPUs: weights of 16 bits, and bytes between the passes.
//            transformers 5 scales bicubic with it.
//   kPillow  the same with weights scaled by 2^22. At most one level apart from kTorch.
//   kFloat   floats, rounded half to even once at the end: torch's bilinear on most machines. A
//            quarter of the values is a level apart from kTorch.
//
// Per axis, from n to m pixels, s = n / m, in double: the source pixels whose distance from
// (i + 0.5) s is below support * max(s, 1) weigh f(distance / max(s, 1)), and sum to one.
// f is the cubic convolution with a = -0.5 (Keys, "Cubic convolution interpolation for digital
// image processing", 1981) or the triangle.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <vector>

#include "media/image.h"

namespace heddle::media {

enum class ResampleFilter { kBilinear, kBicubic };

enum class ResampleArithmetic { kTorch, kPillow, kFloat };

// The weights of one axis. Output i is the sum of weights[i * taps + j] * input[first[i] + j].
struct AxisWeights {
  int64_t taps = 0;             // the most that an output has; shorter ones are filled with zeros
  std::vector<int64_t> first;   // [m]
  std::vector<int64_t> count;   // [m], at most taps
  std::vector<double> weights;  // [m, taps]
};

[[nodiscard]] AxisWeights axis_weights(int64_t n, int64_t m, ResampleFilter filter);

// Weights as integers, scaled by 2^shift.
struct IntegerWeights {
  int shift = 0;
  std::vector<int32_t> weights;  // [m, taps]
};

[[nodiscard]] IntegerWeights integer_weights(const AxisWeights& axis,
                                             ResampleArithmetic arithmetic);

// Sides of at least 1. A side that keeps its length is not filtered.
// Cost: height * new width * taps multiplications, then new height * new width * taps; memory of
// height * new width pixels beside the result.
[[nodiscard]] Image resample(const Image& image, ImageSize size, ResampleFilter filter,
                             ResampleArithmetic arithmetic);

}  // namespace heddle::media
