// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "ops/cpu/row_tasks.h"
#include "ops/elementwise/elementwise.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/elementwise_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;

// Applies `op(d, a, op.Prepare(d, b))` to a row; if b is one number for the whole row, it is
// prepared once. The end of the row runs through the same vector code on a padded copy, so that an
// element's result does not depend on its column.
template <typename Op>
HWY_INLINE void MapRow(const float* a, const float* b, bool b_is_scalar, int64_t count, float* y,
                       Op op) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scalar = op.Prepare(d, hn::Set(d, b_is_scalar ? *b : 0.0f));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto vb = b_is_scalar ? scalar : op.Prepare(d, hn::LoadU(d, b + i));
    hn::StoreU(op(d, hn::LoadU(d, a + i), vb), d, y + i);
  }
  if (i == count) return;
  HWY_ALIGN float padded_a[hn::MaxLanes(d)] = {};
  HWY_ALIGN float padded_b[hn::MaxLanes(d)] = {};
  for (int64_t j = i; j < count; ++j) {
    padded_a[j - i] = a[j];
    if (!b_is_scalar) padded_b[j - i] = b[j];
  }
  const auto vb = b_is_scalar ? scalar : op.Prepare(d, hn::Load(d, padded_b));
  hn::Store(op(d, hn::Load(d, padded_a), vb), d, padded_a);
  for (int64_t j = i; j < count; ++j) y[j] = padded_a[j - i];
}

struct TakesBAsItIs {
  template <class D, class V>
  HWY_INLINE V Prepare(D, V b) const {
    return b;
  }
};

struct AddOp : TakesBAsItIs {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

struct MulOp : TakesBAsItIs {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};

struct SigmoidOp : TakesBAsItIs {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V) const {
    return math::Sigmoid(d, a);
  }
};

struct SigmoidMulOp : MulOp {
  template <class D, class V>
  HWY_INLINE V Prepare(D d, V b) const {
    return math::Sigmoid(d, b);
  }
};

struct SiluMulOp : TakesBAsItIs {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return hn::Mul(math::Silu(d, a), b);
  }
};

// Min and Max may lose a NaN, which is restored.
struct BoundedSiluMulOp : TakesBAsItIs {
  explicit BoundedSiluMulOp(float bound) : limit(bound) {}

  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    const V high = hn::Set(d, limit);
    const V gate = math::Silu(d, a);
    const V bounded_gate = hn::IfThenElse(hn::IsNaN(gate), gate, hn::Min(gate, high));
    const V bounded_b = hn::IfThenElse(hn::IsNaN(b), b, hn::Clamp(b, hn::Neg(high), high));
    return hn::Mul(bounded_gate, bounded_b);
  }

  float limit;
};

struct GeluMulOp : TakesBAsItIs {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return hn::Mul(math::Gelu(d, a), b);
  }
};

// The error function, computed lane by lane without vector code, because few models need it.
struct ErfGeluMulOp : TakesBAsItIs {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(hn::Mul(a, hn::Set(d, std::numbers::sqrt2_v<float> / 2)), d, lanes);
    for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = 1.0f + std::erf(lanes[i]);
    return hn::Mul(hn::Mul(hn::Mul(a, hn::Set(d, 0.5f)), hn::Load(d, lanes)), b);
  }
};

struct SquaredReluOp : TakesBAsItIs {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V) const {
    const V zero = hn::Zero(d);
    return hn::IfThenElse(hn::Lt(a, zero), zero, hn::Mul(a, a));
  }
};

struct SoftcapOp : TakesBAsItIs {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V cap) const {
    return hn::Mul(cap, math::Tanh(d, hn::Div(a, cap)));
  }
};

template <typename Op>
void MapRows(const ElementwiseArgs& args, int64_t begin, int64_t end, Op op) {
  const int64_t N = args.a.shape[1];
  const bool takes_factor =
      args.kind == ElementwiseKind::kScale || args.kind == ElementwiseKind::kGelu ||
      args.kind == ElementwiseKind::kErfGelu || args.kind == ElementwiseKind::kSoftcap;
  // Columns of b, each applied to a run of a's columns; 0 if b is as wide as a.
  const int64_t num_runs = is_unary(args.kind) || args.b.shape[1] == N ? 0 : args.b.shape[1];
  for (int64_t t = begin; t < end; ++t) {
    const auto* a = args.a.row<float>(t);
    auto* y = args.y.row<float>(t);
    if (num_runs == 0) {
      const auto* b = takes_factor ? &args.factor : is_unary(args.kind) ? a : args.b.row<float>(t);
      MapRow(a, b, takes_factor, N, y, op);
      continue;
    }
    const int64_t run = N / num_runs;
    for (int64_t i = 0; i < num_runs; ++i) {
      MapRow(a + i * run, args.b.row<float>(t) + i, true, run, y + i * run, op);
    }
  }
}

void ElementwiseRows(const ElementwiseArgs& args, int64_t begin, int64_t end) {
  switch (args.kind) {
    case ElementwiseKind::kAdd:
      return MapRows(args, begin, end, AddOp());
    case ElementwiseKind::kMul:
    case ElementwiseKind::kScale:
      return MapRows(args, begin, end, MulOp());
    case ElementwiseKind::kSigmoid:
      return MapRows(args, begin, end, SigmoidOp());
    case ElementwiseKind::kSigmoidMul:
      return MapRows(args, begin, end, SigmoidMulOp());
    case ElementwiseKind::kSiluMul:
      return MapRows(args, begin, end, SiluMulOp());
    case ElementwiseKind::kBoundedSiluMul:
      return MapRows(args, begin, end, BoundedSiluMulOp(args.factor));
    case ElementwiseKind::kGeluMul:
    case ElementwiseKind::kGelu:
      return MapRows(args, begin, end, GeluMulOp());
    case ElementwiseKind::kErfGeluMul:
    case ElementwiseKind::kErfGelu:
      return MapRows(args, begin, end, ErfGeluMulOp());
    case ElementwiseKind::kSquaredRelu:
      return MapRows(args, begin, end, SquaredReluOp());
    case ElementwiseKind::kSoftcap:
      return MapRows(args, begin, end, SoftcapOp());
  }
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(ElementwiseRows);

Status elementwise_cpu(CpuContext& context, const ElementwiseArgs& args) {
  const bool transcendental = args.kind != ElementwiseKind::kAdd &&
                              args.kind != ElementwiseKind::kMul &&
                              args.kind != ElementwiseKind::kScale;
  for_row_ranges(
      context.pool, args.a.shape[0], args.a.shape[1] * (transcendental ? 4 : 1),
      [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(ElementwiseRows)(args, begin, end); });
  return {};
}

}  // namespace heddle::ops

#endif
