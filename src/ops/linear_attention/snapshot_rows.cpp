// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/snapshot_rows.h"

#include <cstring>
#include <limits>

#include "core/check.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear_attention/snapshot_rows.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::snapshot_kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = heddle::ops::simd::HWY_NAMESPACE;

// Calls `visit(d, i)` for vectors of a row from number `i` on, and for single numbers at the row's
// end.
template <class Visit>
HWY_INLINE void for_each_vector(int64_t width, const Visit& visit) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) visit(d, i);
  for (; i < width; ++i) visit(one, i);
}

void to_bf16(const float* from, int64_t count, Bf16* to) {
  for_each_vector(count, [&](auto d, int64_t i) HWY_ATTR {
    simd::StoreFloats(simd::LoadFloats(d, from + i), d, to + i);
  });
}

void from_bf16(const Bf16* from, int64_t count, float* to) {
  for_each_vector(count, [&](auto d, int64_t i)
                             HWY_ATTR { hn::StoreU(simd::LoadFloats(d, from + i), d, to + i); });
}

// Quantises a row to i8 and returns the row's scale.
float to_int8(const float* from, int64_t width, int8_t* to) {
  float largest = 0;
  float poison = 0;  // becomes NaN if any number is not finite
  const hn::ScalableTag<float> wide;
  auto largest_lanes = hn::Zero(wide);
  auto poison_lanes = hn::Zero(wide);
  const auto lanes = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const auto x = simd::LoadFloats(wide, from + i);
    largest_lanes = hn::Max(largest_lanes, hn::Abs(x));
    poison_lanes = hn::Add(poison_lanes, hn::Mul(x, hn::Zero(wide)));
  }
  if (i > 0) {
    largest = hn::GetLane(hn::MaxOfLanes(wide, largest_lanes));
    poison = hn::GetLane(hn::SumOfLanes(wide, poison_lanes));
  }
  for (; i < width; ++i) {
    const float magnitude = from[i] < 0 ? -from[i] : from[i];
    largest = largest < magnitude ? magnitude : largest;
    poison += from[i] * 0.0f;
  }
  if (poison != poison) {
    // Any nonzero code: times the scale NaN it gives NaN.
    std::memset(to, 1, static_cast<size_t>(width));
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = largest / 127.0f;
  if (scale < std::numeric_limits<float>::min()) {
    std::memset(to, 0, static_cast<size_t>(width));
    return 0;
  }
  const float inverse = 127.0f / largest;
  for_each_vector(width, [&](auto d, int64_t at) HWY_ATTR {
    const hn::Rebind<int8_t, decltype(d)> d8;
    const auto scaled = hn::Mul(simd::LoadFloats(d, from + at), hn::Set(d, inverse));
    hn::StoreU(hn::DemoteTo(d8, hn::NearestInt(scaled)), d8, to + at);
  });
  return scale;
}

void from_int8(const int8_t* from, float scale, int64_t width, float* to) {
  for_each_vector(width, [&](auto d, int64_t i) HWY_ATTR {
    const hn::Rebind<int8_t, decltype(d)> d8;
    const hn::Rebind<int32_t, decltype(d)> d32;
    const auto x = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, from + i)));
    hn::StoreU(hn::Mul(x, hn::Set(d, scale)), d, to + i);
  });
}

}  // namespace heddle::ops::snapshot_kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

namespace snapshot_kernels {

HWY_EXPORT(to_bf16);
HWY_EXPORT(from_bf16);
HWY_EXPORT(to_int8);
HWY_EXPORT(from_int8);

}  // namespace snapshot_kernels

void encode_snapshot_rows(const float* from, int64_t num_rows, int64_t width,
                          const SnapshotRows& to) {
  using namespace snapshot_kernels;
  switch (to.dtype) {
    case DType::kF32:
      std::memcpy(to.data, from, static_cast<size_t>(num_rows * width) * sizeof(float));
      return;
    case DType::kBf16:
      HWY_DYNAMIC_DISPATCH(to_bf16)(from, num_rows * width, static_cast<Bf16*>(to.data));
      return;
    default:
      HEDDLE_CHECK(to.dtype == DType::kI8);
      for (int64_t row = 0; row < num_rows; ++row) {
        to.scales[row] = HWY_DYNAMIC_DISPATCH(to_int8)(from + row * width, width,
                                                       static_cast<int8_t*>(to.data) + row * width);
      }
  }
}

void decode_snapshot_rows(const SnapshotRows& from, int64_t num_rows, int64_t width, float* to) {
  using namespace snapshot_kernels;
  switch (from.dtype) {
    case DType::kF32:
      std::memcpy(to, from.data, static_cast<size_t>(num_rows * width) * sizeof(float));
      return;
    case DType::kBf16:
      HWY_DYNAMIC_DISPATCH(from_bf16)(static_cast<const Bf16*>(from.data), num_rows * width, to);
      return;
    default:
      HEDDLE_CHECK(from.dtype == DType::kI8);
      for (int64_t row = 0; row < num_rows; ++row) {
        HWY_DYNAMIC_DISPATCH(from_int8)
        (static_cast<const int8_t*>(from.data) + row * width, from.scales[row], width,
         to + row * width);
      }
  }
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
