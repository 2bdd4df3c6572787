// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>

#include "ops/cpu/row_tasks.h"
#include "ops/linear_attention/gated_rms_norm.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear_attention/gated_rms_norm_cpu.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/math-inl.h"
#include "ops/simd/norm-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::gated_norm::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;

// y = x * open(z) for `count` channels; y may be x or z.
template <class Open>
HWY_INLINE void gate_row(const float* x, const float* z, int64_t count, const Open& open,
                         float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + c), open(hn::LoadU(d, z + c))), d, y + c);
  }
  for (; c < count; ++c) y[c] = x[c] * hn::GetLane(open(hn::Set(d, z[c])));
}

void normalise_heads(const GatedRmsNormArgs& args, const float* x, const float* z, float* y) {
  const hn::ScalableTag<float> d;
  const int64_t width = args.x.shape[1];
  const int64_t D = args.group_width;
  const bool shared = args.weight.shape[0] == D;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = D / lanes * lanes;
  const auto open = [&](auto value) HWY_ATTR {
    return args.gate == NormGate::kSigmoid ? math::Sigmoid(d, value) : math::Silu(d, value);
  };
  if (args.gate_first) gate_row(x, z, width, open, y);
  const float* from = args.gate_first ? y : x;
  for (int64_t head = 0; head < width; head += D) {
    const float* weight = args.weight.as<float>() + (shared ? 0 : head);
    const float mean = math::SumOfSquares(from + head, D) / static_cast<float>(D);
    const float scale = 1.0f / std::sqrt(mean + args.epsilon);
    const auto scales = hn::Set(d, scale);
    int64_t c = 0;
    for (; c < whole; c += lanes) {
      const auto normal = hn::Mul(hn::LoadU(d, from + head + c), scales);
      const auto weighted = hn::Mul(normal, hn::LoadU(d, weight + c));
      const auto opening = args.gate_first ? hn::Set(d, 1.0f) : open(hn::LoadU(d, z + head + c));
      hn::StoreU(hn::Mul(weighted, opening), d, y + head + c);
    }
    for (; c < D; ++c) {
      const float opening = args.gate_first ? 1.0f : hn::GetLane(open(hn::Set(d, z[head + c])));
      y[head + c] = from[head + c] * scale * weight[c] * opening;
    }
  }
}

}  // namespace heddle::ops::gated_norm::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

namespace gated_norm {

HWY_EXPORT(normalise_heads);

namespace {

void normalise_row(const GatedRmsNormArgs& args, int64_t t) {
  HWY_DYNAMIC_DISPATCH(normalise_heads)
  (args, args.x.row<float>(t), args.z.row<float>(t), args.y.row<float>(t));
}

}  // namespace

}  // namespace gated_norm

Status gated_rms_norm_cpu(CpuContext& context, const GatedRmsNormArgs& args) {
  const int64_t width = args.x.shape[1];
  constexpr int64_t kCostOfSilu = 4;  // cost of a SiLU in passes over memory
  for_row_ranges(context.pool, args.x.shape[0], width * kCostOfSilu,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t t = begin; t < end; ++t) gated_norm::normalise_row(args, t);
                 });
  return {};
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
