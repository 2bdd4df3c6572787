// SPDX-License-Identifier: Apache-2.0
#include "media/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/check.h"
#include "media/torch_passes.h"

namespace heddle::media {

namespace {

double support_of(ResampleFilter filter) { return filter == ResampleFilter::kBicubic ? 2 : 1; }

double filter_at(ResampleFilter filter, double x) {
  x = std::abs(x);
  if (filter == ResampleFilter::kBilinear) return std::max(0.0, 1 - x);
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return a * (((x - 5) * x + 8) * x - 4);
  return 0;
}

// A pass along one axis of the picture. The pass filters sequences of n lines of `stride` values
// each. In the horizontal pass a line is one pixel and every row is such a sequence. In the
// vertical pass a line is one row and there is a single sequence.
struct Pass {
  const AxisWeights& axis;
  int64_t num_axes;
  int64_t n;
  int64_t m;
  int64_t stride;
};

uint8_t clamped(int32_t value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

void integer_pass(const Pass& pass, const IntegerWeights& integers, const uint8_t* in,
                  uint8_t* out) {
  const int32_t half = 1 << (integers.shift - 1);
  std::vector<int32_t> sums(static_cast<size_t>(pass.stride));
  for (int64_t a = 0; a < pass.num_axes; ++a) {
    for (int64_t i = 0; i < pass.m; ++i, out += pass.stride) {
      const auto index = static_cast<size_t>(i);
      const int32_t* const weights = integers.weights.data() + i * pass.axis.taps;
      const uint8_t* line = in + (a * pass.n + pass.axis.first[index]) * pass.stride;
      const int64_t count = pass.axis.count[index];
      if (pass.stride == 3) {  // a line is one pixel: its three sums stay in registers
        int32_t red = half, green = half, blue = half;
        for (int64_t j = 0; j < count; ++j, line += 3) {
          red += weights[j] * line[0];
          green += weights[j] * line[1];
          blue += weights[j] * line[2];
        }
        out[0] = clamped(red >> integers.shift);
        out[1] = clamped(green >> integers.shift);
        out[2] = clamped(blue >> integers.shift);
        continue;
      }
      std::ranges::fill(sums, half);
      for (int64_t j = 0; j < count; ++j, line += pass.stride) {
        for (int64_t k = 0; k < pass.stride; ++k) {
          sums[static_cast<size_t>(k)] += weights[j] * line[k];
        }
      }
      for (int64_t k = 0; k < pass.stride; ++k) {
        out[k] = clamped(sums[static_cast<size_t>(k)] >> integers.shift);
      }
    }
  }
}

Image scale_width(const Image& image, int64_t width, ResampleFilter filter,
                  ResampleArithmetic arithmetic) {
  const int64_t height = image.size.height;
  Image result({.height = height, .width = width});
  const AxisWeights axis = axis_weights(image.size.width, width, filter);
  const IntegerWeights integers = integer_weights(axis, arithmetic);
  if (arithmetic == ResampleArithmetic::kTorch &&
      scale_rows(image.rgb.data(), height, image.size.width, WeightPairs(axis, integers),
                 result.rgb.data())) {
    return result;
  }
  integer_pass(Pass{axis, height, image.size.width, width, 3}, integers, image.rgb.data(),
               result.rgb.data());
  return result;
}

Image scale_height(const Image& image, int64_t height, ResampleFilter filter,
                   ResampleArithmetic arithmetic) {
  const int64_t row_bytes = image.size.width * 3;
  Image result({.height = height, .width = image.size.width});
  const AxisWeights axis = axis_weights(image.size.height, height, filter);
  const IntegerWeights integers = integer_weights(axis, arithmetic);
  if (arithmetic == ResampleArithmetic::kTorch &&
      scale_columns(image.rgb.data(), row_bytes, WeightPairs(axis, integers), result.rgb.data())) {
    return result;
  }
  integer_pass(Pass{axis, 1, image.size.height, height, row_bytes}, integers, image.rgb.data(),
               result.rgb.data());
  return result;
}

template <typename In>
void float_pass(const Pass& pass, const In* in, float* out) {
  for (int64_t a = 0; a < pass.num_axes; ++a) {
    for (int64_t i = 0; i < pass.m; ++i, out += pass.stride) {
      const auto index = static_cast<size_t>(i);
      const double* const weights = pass.axis.weights.data() + i * pass.axis.taps;
      const In* line = in + (a * pass.n + pass.axis.first[index]) * pass.stride;
      std::fill_n(out, pass.stride, 0.0f);
      for (int64_t j = 0; j < pass.axis.count[index]; ++j, line += pass.stride) {
        const auto weight = static_cast<float>(weights[j]);
        for (int64_t k = 0; k < pass.stride; ++k) out[k] += weight * static_cast<float>(line[k]);
      }
    }
  }
}

Image resample_as_float(const Image& image, ImageSize size, ResampleFilter filter) {
  const auto [height, width] = image.size;
  std::vector<float> rows(static_cast<size_t>(height * size.width * 3));
  if (size.width == width) {
    std::ranges::copy(image.rgb, rows.begin());
  } else {
    const AxisWeights axis = axis_weights(width, size.width, filter);
    float_pass(Pass{axis, height, width, size.width, 3}, image.rgb.data(), rows.data());
  }
  if (size.height != height) {
    const AxisWeights axis = axis_weights(height, size.height, filter);
    std::vector<float> columns(static_cast<size_t>(size.pixels() * 3));
    float_pass(Pass{axis, 1, height, size.height, size.width * 3}, rows.data(), columns.data());
    rows = std::move(columns);
  }
  Image result(size);
  std::ranges::transform(rows, result.rgb.begin(), [](float value) {
    return static_cast<uint8_t>(std::nearbyint(std::clamp(value, 0.0f, 255.0f)));
  });
  return result;
}

}  // namespace

AxisWeights axis_weights(int64_t n, int64_t m, ResampleFilter filter) {
  const double scale = static_cast<double>(n) / static_cast<double>(m);
  const double spread = std::max(scale, 1.0);
  const double support = support_of(filter) * spread;
  AxisWeights axis;
  axis.taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  axis.weights.resize(static_cast<size_t>(m * axis.taps));
  for (int64_t i = 0; i < m; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto low = std::max(static_cast<int64_t>(center - support + 0.5), int64_t{0});
    const auto high = std::min(static_cast<int64_t>(center + support + 0.5), n);
    double* const weights = axis.weights.data() + i * axis.taps;
    double sum = 0;
    for (int64_t j = 0; j < high - low; ++j) {
      weights[j] = filter_at(filter, (static_cast<double>(j + low) - center + 0.5) / spread);
      sum += weights[j];
    }
    for (int64_t j = 0; j < high - low; ++j) weights[j] /= sum;
    axis.first.push_back(low);
    axis.count.push_back(high - low);
  }
  return axis;
}

IntegerWeights integer_weights(const AxisWeights& axis, ResampleArithmetic arithmetic) {
  IntegerWeights integers{.shift = 22, .weights = {}};
  if (arithmetic == ResampleArithmetic::kTorch) {
    // Uses the largest scale at which the largest weight still fits in 16 bits.
    const double largest = std::ranges::max(axis.weights);
    for (int shift = 0; shift < 22; ++shift) {
      if (std::trunc(0.5 + std::ldexp(largest, shift + 1)) >= 1 << 15) {
        integers.shift = shift;
        break;
      }
    }
  }
  HEDDLE_CHECK_GE(integers.shift, 1);
  for (const double weight : axis.weights) {
    const double scaled = std::ldexp(weight, integers.shift);
    integers.weights.push_back(static_cast<int32_t>(scaled + (weight < 0 ? -0.5 : 0.5)));
  }
  return integers;
}

Image resample(const Image& image, ImageSize size, ResampleFilter filter,
               ResampleArithmetic arithmetic) {
  HEDDLE_CHECK(size.height > 0 && size.width > 0);
  if (size == image.size) return image;
  if (arithmetic == ResampleArithmetic::kFloat) return resample_as_float(image, size, filter);
  if (size.width == image.size.width) return scale_height(image, size.height, filter, arithmetic);
  Image rows = scale_width(image, size.width, filter, arithmetic);
  if (size.height == image.size.height) return rows;
  return scale_height(rows, size.height, filter, arithmetic);
}

}  // namespace heddle::media
