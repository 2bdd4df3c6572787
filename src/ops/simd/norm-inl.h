// SPDX-License-Identifier: Apache-2.0
// RMS norm of one row, in Highway's per-target style (see math-inl.h for how such a file is
// included).
#if defined(HEDDLE_OPS_SIMD_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_SIMD_NORM_INL_H_
#undef HEDDLE_OPS_SIMD_NORM_INL_H_
#else
#define HEDDLE_OPS_SIMD_NORM_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sum of squares of `count` values, added in an order that depends on `count` alone.
HWY_INLINE float SumOfSquares(const float* HWY_RESTRICT x, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + i + lanes);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < count; ++i) sum += x[i] * x[i];
  return sum;
}

// y = x / sqrt(mean(x^2) + epsilon) * weight; y may be x.
HWY_INLINE void RmsNormRow(const float* x, const float* HWY_RESTRICT weight, int64_t count,
                           float epsilon, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float scale =
      1.0f / std::sqrt(SumOfSquares(x, count) / static_cast<float>(count) + epsilon);
  const auto scales = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), scales);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, y + i);
  }
  for (; i < count; ++i) y[i] = x[i] * scale * weight[i];
}

}  // namespace heddle::ops::simd::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_SIMD_NORM_INL_H_
