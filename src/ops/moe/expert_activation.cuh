// SPDX-License-Identifier: Apache-2.0
// The activation between the two products of an expert, in each form of ExpertActivation
// (routed_moe.h).
// Each thread calls it for one number of `hidden`; an exponential and a division. Used by the
// kernels with fp32 sums; routed_moe_sm90.cu has a faster one.
#pragma once

#include "ops/elementwise/element.cuh"
#include "ops/moe/routed_moe.h"

namespace heddle::ops {

// f(gate, up), or f(gate) for experts without a gate. Written with comparisons, which keep a NaN;
// fminf() and fmaxf() would lose it.
__device__ inline float activated(float gate, float up, const ExpertActivation& activation) {
  const float limit = activation.limit;
  if (activation.form == ExpertForm::kSquaredRelu) {
    const float positive = gate < 0.0f ? 0.0f : gate;
    return positive * positive;
  }
  if (activation.form == ExpertForm::kGeglu) return gelu_of(gate) * up;
  if (activation.form == ExpertForm::kBoundedSwiglu) return bounded_silu_mul_of(gate, up, limit);
  if (limit == 0) return gate / (1.0f + expf(-gate)) * up;
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : (up < -limit ? -limit : up);
  return (u + 1.0f) * (g / (1.0f + expf(-activation.alpha * g)));
}

}  // namespace heddle::ops
