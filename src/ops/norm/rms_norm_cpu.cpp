// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/row_tasks.h"
#include "ops/norm/rms_norm.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/rms_norm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/simd/norm-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace norm = heddle::ops::simd::HWY_NAMESPACE;

void AddInto(float* HWY_RESTRICT target, const float* HWY_RESTRICT x, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, target + i), hn::LoadU(d, x + i)), d, target + i);
  }
  for (; i < count; ++i) target[i] += x[i];
}

void RmsNormRows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.x.shape[1];
  const int64_t H = args.weight.shape[0];
  const auto* weight = args.weight.as<float>();
  for (int64_t t = begin; t < end; ++t) {
    const float* source = args.x.row<float>(t);
    if (args.residual.data != nullptr) {
      auto* residual = args.residual.row<float>(t);
      AddInto(residual, source, width);
      source = residual;
    }
    auto* y = args.y.row<float>(t);
    for (int64_t start = 0; start < width; start += H) {
      norm::RmsNormRow(source + start, weight, H, args.epsilon, y + start);
    }
  }
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(RmsNormRows);

Status rms_norm_cpu(CpuContext& context, const RmsNormArgs& args) {
  for_row_ranges(context.pool, args.x.shape[0], args.x.shape[1], [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RmsNormRows)(args, begin, end);
  });
  return {};
}

}  // namespace heddle::ops

#endif
