// SPDX-License-Identifier: Apache-2.0
#include "quant/round_to_nearest.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/compiler.h"
#include "quant/small_floats.h"

namespace heddle::quant {

namespace {

constexpr int64_t kBlock = 128;
constexpr int64_t kMxfp4Group = 32;

HEDDLE_VECTOR_CLONES
float largest_magnitude(const float* w, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(w[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

void store_scale(UnpackedMatrix& out, int64_t index, float scale) {
  if (out.format.scale == ScaleType::kF16) {
    const F16 half = to_f16(scale);
    std::memcpy(out.scales.data() + 2 * index, &half, sizeof(half));
  } else {
    std::memcpy(out.scales.data() + 4 * index, &scale, sizeof(scale));
  }
}

// A scale that is never zero, so that dividing zero weights by it gives zero.
float scale_for(float largest, float largest_code) {
  constexpr float kSmallest = 1e-30f;
  return std::max(largest, kSmallest) / largest_code;
}

HEDDLE_VECTOR_CLONES
void quantise_int8(const float* w, float scale, uint8_t* codes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float q = std::nearbyint(w[i] / scale);
    const float clamped = q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q;
    codes[i] = static_cast<uint8_t>(static_cast<int32_t>(clamped) + 128);
  }
}

void quantise_group_int4(const float* w, int64_t count, UnpackedMatrix& out, int64_t group,
                         uint8_t* codes) {
  float low = 0;
  float high = 0;
  for (int64_t i = 0; i < count; ++i) {
    low = std::min(low, w[i]);
    high = std::max(high, w[i]);
  }
  // Codes are computed with the stored scale, rounded to fp16, which must not be zero.
  constexpr float kSmallest = 0x1p-24f;
  constexpr float kLargest = 65504.0f;
  const float scale = to_float(to_f16(std::clamp((high - low) / 15.0f, kSmallest, kLargest)));
  const float zero = std::clamp(std::nearbyint(-low / scale), 0.0f, 15.0f);
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<uint8_t>(std::clamp(std::nearbyint(w[i] / scale) + zero, 0.0f, 15.0f));
  }
  store_scale(out, group, scale);
  out.zeros[static_cast<size_t>(group)] = static_cast<uint8_t>(zero);
}

void quantise_group_mxfp4(const float* w, int64_t count, UnpackedMatrix& out, int64_t group,
                          uint8_t* codes) {
  constexpr int kBias = 127;
  const float largest = std::max(largest_magnitude(w, count), std::ldexp(1.0f, 3 - kBias));
  const int exponent = std::min(std::ilogb(largest) - 2, 254 - kBias);
  const float scale = std::ldexp(1.0f, exponent);
  for (int64_t i = 0; i < count; ++i) codes[i] = float_to_e2m1(w[i] / scale);
  out.scales[static_cast<size_t>(group)] = static_cast<std::byte>(exponent + kBias);
}

void quantise_fp8(const float* w, float scale, uint8_t* codes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) codes[i] = float_to_e4m3(w[i] / scale);
}

void quantise_blocks(const float* w, UnpackedMatrix& out) {
  const int64_t K = out.format.K;
  const int64_t groups = out.format.num_groups();
  for (int64_t row = 0; row < out.N; row += kBlock) {
    const int64_t end = std::min(row + kBlock, out.N);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t k = g * kBlock;
      const int64_t width = std::min(kBlock, K - k);
      float largest = 0;
      for (int64_t n = row; n < end; ++n) {
        largest = std::max(largest, largest_magnitude(w + n * K + k, width));
      }
      const float scale = scale_for(largest, kE4M3Max);
      for (int64_t n = row; n < end; ++n) {
        quantise_fp8(w + n * K + k, scale, out.codes.data() + n * K + k, width);
        store_scale(out, n * groups + g, scale);
      }
    }
  }
}

}  // namespace

RowFormat format_of(Scheme scheme, int64_t K, int64_t group_size) {
  switch (scheme) {
    case Scheme::kInt4:
      return {.code = Code::kU4,
              .scale = ScaleType::kF16,
              .K = K,
              .group_size = group_size,
              .has_zeros = true};
    case Scheme::kInt8:
      return {.code = Code::kU8, .K = K, .group_size = K, .constant_zero = 128};
    case Scheme::kFp8:
      return {.code = Code::kE4M3, .K = K, .group_size = K};
    case Scheme::kFp8Block:
      return {.code = Code::kE4M3, .K = K, .group_size = kBlock, .block_rows = kBlock};
    case Scheme::kMxfp4:
      return {.code = Code::kE2M1, .scale = ScaleType::kE8M0, .K = K, .group_size = kMxfp4Group};
  }
  HEDDLE_CHECK(false && "unknown scheme");
}

UnpackedMatrix round_to_nearest(const float* w, int64_t N, int64_t K, Scheme scheme,
                                int64_t group_size) {
  UnpackedMatrix out{.format = format_of(scheme, K, group_size), .N = N};
  const int64_t groups = out.format.num_groups();
  out.codes.resize(static_cast<size_t>(N * K));
  out.scales.resize(static_cast<size_t>(N * out.format.scale_bytes()));
  if (out.format.has_zeros) out.zeros.resize(static_cast<size_t>(N * groups));
  if (scheme == Scheme::kFp8Block) {
    quantise_blocks(w, out);
    return out;
  }
  for (int64_t n = 0; n < N; ++n) {
    const float* const row = w + n * K;
    uint8_t* const codes = out.codes.data() + n * K;
    if (scheme == Scheme::kInt4 || scheme == Scheme::kMxfp4) {
      const int64_t size = out.format.group_size;
      const auto quantise_group =
          scheme == Scheme::kInt4 ? quantise_group_int4 : quantise_group_mxfp4;
      HEDDLE_CHECK_EQ(K % size, 0);
      for (int64_t g = 0; g < groups; ++g) {
        quantise_group(row + g * size, size, out, n * groups + g, codes + g * size);
      }
      continue;
    }
    const bool int8 = scheme == Scheme::kInt8;
    const float scale = scale_for(largest_magnitude(row, K), int8 ? 127.0f : kE4M3Max);
    if (int8) {
      quantise_int8(row, scale, codes, K);
    } else {
      quantise_fp8(row, scale, codes, K);
    }
    store_scale(out, n, scale);
  }
  return out;
}

}  // namespace heddle::quant
