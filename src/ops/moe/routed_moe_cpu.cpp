// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "core/check.h"
#include "ops/cpu/row_tasks.h"
#include "ops/gemm/grouped_linear.h"
#include "ops/gemm/product_tasks.h"
#include "ops/moe/expert_sort.h"
#include "ops/moe/moe_route.h"
#include "ops/moe/routed_moe.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe/routed_moe_cpu.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;

// gate[i] = silu(gate[i]) * up[i]
void gate_row(float* gate, const float* up, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto activated = math::Silu(d, hn::LoadU(d, gate + i));
    hn::StoreU(hn::Mul(activated, hn::LoadU(d, up + i)), d, gate + i);
  }
  if (i < count) {
    HWY_ALIGN float tail[HWY_MAX_BYTES / sizeof(float)] = {};
    std::copy_n(gate + i, count - i, tail);
    hn::Store(math::Silu(d, hn::Load(d, tail)), d, tail);
    for (int64_t j = 0; i + j < count; ++j) gate[i + j] = tail[j] * up[i + j];
  }
}

// gate[i] = activate(gate[i], up[i]); the end of the row is computed in the same vectors.
template <typename Activate>
HWY_INLINE void activate_row(float* gate, const float* up, int64_t count,
                             const Activate& activate) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(activate(hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, gate + i);
  }
  if (i == count) return;
  HWY_ALIGN float tail_gate[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN float tail_up[HWY_MAX_BYTES / sizeof(float)] = {};
  std::copy_n(gate + i, count - i, tail_gate);
  std::copy_n(up + i, count - i, tail_up);
  hn::Store(activate(hn::Load(d, tail_gate), hn::Load(d, tail_up)), d, tail_gate);
  std::copy_n(tail_gate, count - i, gate + i);
}

// gate[i] = (up' + 1) * gate' * sigmoid(alpha * gate') with gate' and up' the limited gate[i] and
// up[i]. Min and Max may lose a NaN, which is restored.
void clamped_gate_row(float* gate, const float* up, int64_t count, float limit, float alpha) {
  const hn::ScalableTag<float> d;
  const auto high = hn::Set(d, limit);
  const auto low = hn::Set(d, -limit);
  activate_row(gate, up, count, [&](auto g, auto u) HWY_ATTR {
    const auto bounded_g = hn::IfThenElse(hn::IsNaN(g), g, hn::Min(g, high));
    const auto bounded_u = hn::IfThenElse(hn::IsNaN(u), u, hn::Clamp(u, low, high));
    const auto gated = hn::Mul(bounded_g, math::Sigmoid(d, hn::Mul(hn::Set(d, alpha), bounded_g)));
    return hn::Mul(hn::Add(bounded_u, hn::Set(d, 1.0f)), gated);
  });
}

// gate[i] = min(silu(gate[i]), limit) * up', with up' the limited up[i].
void bounded_gate_row(float* gate, const float* up, int64_t count, float limit) {
  const hn::ScalableTag<float> d;
  const auto high = hn::Set(d, limit);
  activate_row(gate, up, count, [&](auto g, auto u) HWY_ATTR {
    const auto silu = math::Silu(d, g);
    const auto bounded = hn::IfThenElse(hn::IsNaN(silu), silu, hn::Min(silu, high));
    return hn::Mul(bounded, hn::IfThenElse(hn::IsNaN(u), u, hn::Clamp(u, hn::Neg(high), high)));
  });
}

void gelu_gate_row(float* gate, const float* up, int64_t count) {
  const hn::ScalableTag<float> d;
  activate_row(gate, up, count,
               [&](auto g, auto u) HWY_ATTR { return hn::Mul(math::Gelu(d, g), u); });
}

// row[i] = max(row[i], 0)^2, NaN included.
void squared_relu_row(float* row, int64_t count) {
  const hn::ScalableTag<float> d;
  activate_row(row, row, count, [&](auto x, auto) HWY_ATTR {
    const auto positive = hn::IfThenElse(hn::IsNaN(x), x, hn::Max(x, hn::Zero(d)));
    return hn::Mul(positive, positive);
  });
}

// y = sum over a of weights[a] * rows[slot_row[a]], in the order of a. Vectors and the end of the
// row are rounded alike: a product, then a sum, for every term.
void combine_row(const float* rows, int64_t width, const int32_t* slot_row, const float* weights,
                 int64_t A, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    auto sum = hn::Mul(hn::Set(d, weights[0]), hn::LoadU(d, rows + slot_row[0] * width + i));
    for (int64_t a = 1; a < A; ++a) {
      const auto row = hn::LoadU(d, rows + slot_row[a] * width + i);
      sum = hn::Add(sum, hn::Mul(hn::Set(d, weights[a]), row));
    }
    hn::StoreU(sum, d, y + i);
  }
  for (; i < width; ++i) {
    float sum = weights[0] * rows[slot_row[0] * width + i];
    for (int64_t a = 1; a < A; ++a) sum += weights[a] * rows[slot_row[a] * width + i];
    y[i] = sum;
  }
}

// terms[a] = weights[a] * rows[slot_row[a]], rounded as in combine_row(); +0 for slots from row
// `end` on.
void write_terms(const float* rows, int64_t width, const int32_t* slot_row, const float* weights,
                 int64_t A, int32_t end, float* terms) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t a = 0; a < A; ++a, terms += width) {
    if (slot_row[a] >= end) {
      std::fill_n(terms, width, 0.0f);
      continue;
    }
    const float* const row = rows + slot_row[a] * width;
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      hn::StoreU(hn::Mul(hn::Set(d, weights[a]), hn::LoadU(d, row + i)), d, terms + i);
    }
    for (; i < width; ++i) terms[i] = weights[a] * row[i];
  }
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(gate_row);
HWY_EXPORT(clamped_gate_row);
HWY_EXPORT(bounded_gate_row);
HWY_EXPORT(gelu_gate_row);
HWY_EXPORT(squared_relu_row);
HWY_EXPORT(combine_row);
HWY_EXPORT(write_terms);

namespace {

// gate [I] = f(gate, up), with up stored after gate, or f(gate).
void activate(const ExpertActivation& activation, float* gate, int64_t I) {
  switch (activation.form) {
    case ExpertForm::kBoundedSwiglu:
      return HWY_DYNAMIC_DISPATCH(bounded_gate_row)(gate, gate + I, I, activation.limit);
    case ExpertForm::kGeglu:
      return HWY_DYNAMIC_DISPATCH(gelu_gate_row)(gate, gate + I, I);
    case ExpertForm::kSquaredRelu:
      return HWY_DYNAMIC_DISPATCH(squared_relu_row)(gate, I);
    case ExpertForm::kSwiglu:
      if (activation.limit == 0) return HWY_DYNAMIC_DISPATCH(gate_row)(gate, gate + I, I);
      return HWY_DYNAMIC_DISPATCH(clamped_gate_row)(gate, gate + I, I, activation.limit,
                                                    activation.alpha);
  }
}

// Most tokens of a pass: enough rows for every expert to run at full speed, and so few that the
// rows of the second product (A * H floats a token) stay within tens of megabytes.
constexpr int64_t kTokensAtOnce = 1024;

// Offsets of the arrays in the scratch memory of a pass.
struct Layout {
  int64_t experts, weights, row_offsets, row_token, slot_row, gate_up, down, group_tasks, rounded;
  int64_t total;

  Layout(int64_t max_T, const RoutedMoeShape& shape, const ProductOptions& options) {
    const int64_t T = std::min(max_T, kTokensAtOnce);
    const int64_t R = T * shape.A;
    int64_t offset = 0;
    const auto place = [&](int64_t bytes) {
      const int64_t here = offset;
      offset += (bytes + 63) / 64 * 64;
      return here;
    };
    experts = place(R * 4);
    weights = place(R * 4);
    row_offsets = place((shape.E + 2) * 4);  // one more for the experts of other ranks
    row_token = place(R * 4);
    slot_row = place(R * 4);
    gate_up = place(R * 2 * shape.I * 4);
    down = place(R * shape.H * 4);
    group_tasks = place(group_task_bytes(shape.E));
    rounded = place(std::max(rounded_bytes(T, shape.H, shape.weight, options),
                             rounded_bytes(R, shape.I, shape.weight, options)));
    total = offset + 64;  // room to align the start
  }
};

// Moves a token's slots of rows below `end` to the front, in order, and returns their number.
int64_t keep_own_slots(int32_t* slot_row, float* weights, int64_t A, int32_t end) {
  int64_t count = 0;
  for (int64_t a = 0; a < A; ++a) {
    if (slot_row[a] >= end) continue;
    slot_row[count] = slot_row[a];
    weights[count++] = weights[a];
  }
  return count;
}

// One pass: the tokens [first, first + T) of `args`.
void run_pass(CpuContext& context, const RoutedMoeArgs& args, const RoutedMoeShape& shape,
              const Layout& layout, const ProductOptions& options, int64_t first, int64_t T) {
  const auto [H, I, E, A, weight, x] = shape;
  const int64_t R = T * A;
  std::byte* base = align_to_line(args.workspace.data());
  auto* experts = reinterpret_cast<int32_t*>(base + layout.experts);
  auto* weights = reinterpret_cast<float*>(base + layout.weights);
  auto* gate_up = reinterpret_cast<float*>(base + layout.gate_up);
  auto* down = reinterpret_cast<float*>(base + layout.down);
  const std::span<std::byte> group_tasks(base + layout.group_tasks,
                                         static_cast<size_t>(group_task_bytes(E)));
  const std::span<std::byte> rounded(base + layout.rounded,
                                     static_cast<size_t>(layout.total - 64 - layout.rounded));

  const TensorView logits(args.router_logits.row<float>(first), DType::kF32, {T, E},
                          args.router_logits.row_stride);
  const Status routed = moe_route_cpu(context, {.logits = logits,
                                                .experts = {experts, DType::kI32, {T, A}},
                                                .weights = {weights, DType::kF32, {T, A}},
                                                .renormalize = args.renormalize,
                                                .scoring = args.scoring,
                                                .correction = args.correction,
                                                .expert_scales = args.expert_scales});
  HEDDLE_CHECK(routed.ok());
  const ExpertOrder order{.row_offsets = reinterpret_cast<int32_t*>(base + layout.row_offsets),
                          .row_token = reinterpret_cast<int32_t*>(base + layout.row_token),
                          .slot_row = reinterpret_cast<int32_t*>(base + layout.slot_row)};
  const int64_t own = args.w13.shape[0];
  if (args.own) renumber_experts(experts, R, args.own->first, own);
  sort_by_expert(experts, T, A, args.own ? own + 1 : E, order);
  // Rows of other ranks' experts come last, and nothing is computed for them.
  const int32_t own_rows = order.row_offsets[own];

  GroupedProduct up{.all = {.x = args.x.row<float>(first),
                            .x_stride = args.x.row_stride,
                            .x_rows = order.row_token,
                            .bias = args.w13_bias.as<float>(),
                            .y = gate_up,
                            .y_stride = 2 * I,
                            .T = own_rows,
                            .K = H,
                            .N = rows_per_hidden(args.activation.form) * I},
                    .expert_stride = args.w13.row_stride,
                    .row_offsets = order.row_offsets,
                    .num_experts = own};
  set_weight(up.all, args.w13);
  prepare_x(context.pool, up.all, T, options, rounded);
  multiply_groups(context.pool, up, options, group_tasks);

  constexpr int64_t kCostOfSilu = 6;  // passes over memory it takes as long as
  for_row_ranges(context.pool, own_rows, kCostOfSilu * I, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* gate = gate_up + r * 2 * I;
      activate(args.activation, gate, I);
    }
  });

  GroupedProduct out{.all = {.x = gate_up,
                             .x_stride = 2 * I,
                             .bias = args.w2_bias.as<float>(),
                             .y = down,
                             .y_stride = H,
                             .T = own_rows,
                             .K = I,
                             .N = H},
                     .expert_stride = args.w2.row_stride,
                     .row_offsets = order.row_offsets,
                     .num_experts = own};
  set_weight(out.all, args.w2);
  prepare_x(context.pool, out.all, own_rows, options, rounded);
  multiply_groups(context.pool, out, options, group_tasks);

  for_row_ranges(context.pool, T, A * H, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int32_t* const slots = order.slot_row + t * A;
      float* const factors = weights + t * A;
      float* const y = args.y.row<float>(first + t);
      if (args.own && args.own->in_terms) {
        HWY_DYNAMIC_DISPATCH(write_terms)(down, H, slots, factors, A, own_rows, y);
        continue;
      }
      const int64_t count = args.own ? keep_own_slots(slots, factors, A, own_rows) : A;
      if (count == 0) {
        std::fill_n(y, H, 0.0f);
      } else {
        HWY_DYNAMIC_DISPATCH(combine_row)(down, H, slots, factors, count, y);
      }
    }
  });
}

}  // namespace

int64_t routed_moe_workspace_bytes_cpu(const CpuContext& context, int64_t max_T,
                                       const RoutedMoeShape& shape) {
  return Layout(max_T, shape, product_options(context)).total;
}

Status routed_moe_cpu(CpuContext& context, const RoutedMoeArgs& args) {
  const RoutedMoeShape shape{.H = args.x.shape[1],
                             .I = args.w2.shape[2],
                             .E = args.router_logits.shape[1],
                             .A = args.experts_per_token,
                             .weight = expert_dtype(args.w13.dtype, args.w2.dtype)};
  const ProductOptions options = product_options(context);
  const int64_t T = args.x.shape[0];
  const Layout layout(T, shape, options);
  for (int64_t first = 0; first < T; first += kTokensAtOnce) {
    run_pass(context, args, shape, layout, options, first, std::min(kTokensAtOnce, T - first));
  }
  return ok_status();
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
