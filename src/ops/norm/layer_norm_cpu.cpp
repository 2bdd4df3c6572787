// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/cpu/row_tasks.h"
#include "ops/norm/layer_norm.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/layer_norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sum over i of term(x[i]), in an order that depends on `count` alone.
template <typename Term>
HWY_INLINE float SumOf(const float* x, int64_t count, const Term& term) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) sums = hn::Add(sums, term(d, hn::LoadU(d, x + i)));
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  const hn::CappedTag<float, 1> one;
  for (; i < count; ++i) sum += hn::GetLane(term(one, hn::LoadU(one, x + i)));
  return sum;
}

void LayerNormRow(const float* x, const float* weight, const float* bias, int64_t count,
                  float epsilon, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto size = static_cast<float>(count);
  const float mean = SumOf(x, count, [](auto, auto v) HWY_ATTR { return v; }) / size;
  const float squares = SumOf(x, count, [mean](auto tag, auto v) HWY_ATTR {
    const auto left = hn::Sub(v, hn::Set(tag, mean));
    return hn::Mul(left, left);
  });
  const float scale = 1.0f / std::sqrt(squares / size + epsilon);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto left = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    auto result = hn::Mul(hn::Mul(left, hn::Set(d, scale)), hn::LoadU(d, weight + i));
    if (bias != nullptr) result = hn::Add(result, hn::LoadU(d, bias + i));
    hn::StoreU(result, d, y + i);
  }
  for (; i < count; ++i) {
    y[i] = (x[i] - mean) * scale * weight[i] + (bias == nullptr ? 0.0f : bias[i]);
  }
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(LayerNormRow);

Status layer_norm_cpu(CpuContext& context, const LayerNormArgs& args) {
  const int64_t H = args.x.shape[1];
  for_row_ranges(context.pool, args.x.shape[0], H, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      HWY_DYNAMIC_DISPATCH(LayerNormRow)
      (args.x.row<float>(t), args.weight.as<float>(), args.bias.as<float>(), H, args.epsilon,
       args.y.row<float>(t));
    }
  });
  return {};
}

}  // namespace heddle::ops

#endif
