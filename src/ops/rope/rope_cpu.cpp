// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>

#include "ops/cpu/row_tasks.h"
#include "ops/rope/rope.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rope/rope_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/simd/norm-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace norm = heddle::ops::simd::HWY_NAMESPACE;

// y may be x: every pair is read before it is written.
void RotateHead(const float* x, const float* HWY_RESTRICT cosines, const float* HWY_RESTRICT sines,
                int64_t half, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + half + i);
    const auto c = hn::LoadU(d, cosines + i);
    const auto s = hn::LoadU(d, sines + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, y + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, y + half + i);
  }
  for (; i < half; ++i) {
    const float a = x[i];
    const float b = x[half + i];
    y[i] = a * cosines[i] - b * sines[i];
    y[half + i] = b * cosines[i] + a * sines[i];
  }
}

// Rotates pairs of neighbouring channels; y may be x here, too.
void RotatePairs(const float* x, const float* HWY_RESTRICT cosines, const float* HWY_RESTRICT sines,
                 int64_t half, float* y) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    y[2 * i] = a * cosines[i] - b * sines[i];
    y[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

void RopeRows(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t D = args.head_dim;
  const int64_t width = args.x.shape[1];
  const int64_t half = args.num_pairs();
  const bool has_two = args.inverse_frequencies.shape.rank() == 2;
  const int64_t first = args.first_channel;
  const auto* axes = args.axes.as<int32_t>();  // null: there is one axis
  std::array<float, kMaxRotaryPairs> cosines;
  std::array<float, kMaxRotaryPairs> sines;
  for (int64_t t = begin; t < end; ++t) {
    const auto* positions = args.positions.row<int32_t>(t);
    const bool is_long = has_two && (*positions & kLongRope) != 0;
    const auto* frequencies = args.inverse_frequencies.as<float>() + (is_long ? half : 0);
    for (int64_t i = 0; i < half; ++i) {
      const auto position =
          static_cast<float>(positions[axes == nullptr ? 0 : axes[i]] & ~kLongRope);
      const float angle = frequencies[i] * position;
      cosines[static_cast<size_t>(i)] = std::cos(angle) * args.factor;
      sines[static_cast<size_t>(i)] = std::sin(angle) * args.factor;
    }
    const auto* x = args.x.row<float>(t);
    auto* y = args.y.row<float>(t);
    for (int64_t start = 0; start < width; start += D) {
      const float* head = x + start;
      if (args.norm_weight.data != nullptr) {
        norm::RmsNormRow(head, args.norm_weight.as<float>(), D, args.epsilon, y + start);
        head = y + start;
      }
      if (head != y + start) {
        for (int64_t i = 0; i < first; ++i) y[start + i] = head[i];
        for (int64_t i = first + 2 * half; i < D; ++i) y[start + i] = head[i];
      }
      const auto rotate = args.interleaved ? RotatePairs : RotateHead;
      rotate(head + first, cosines.data(), sines.data(), half, y + start + first);
    }
  }
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(RopeRows);

Status rope_cpu(CpuContext& context, const RopeArgs& args) {
  // A sine or cosine costs about as much as ten elements of a plain pass.
  const int64_t row_cost = args.x.shape[1] + 20 * args.num_pairs();
  for_row_ranges(context.pool, args.x.shape[0], row_cost, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RopeRows)(args, begin, end);
  });
  return {};
}

}  // namespace heddle::ops

#endif
