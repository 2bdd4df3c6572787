// SPDX-License-Identifier: Apache-2.0
// The activation between the two products of an expert (routed_moe.h): silu(gate) up, or with a
// limit (u + 1) g sigmoid(alpha g) of the clipped gate g and up u.
// Each thread calls for itself, for a number of `hidden`; an exponential and a division.
// Taken by the kernels with fp32 sums; routed_moe_sm90.cu has a faster one.
#pragma once

namespace heddle::ops {

// silu(gate) * up, or with a limit the bounded form; comparisons keep a NaN, minima would lose it.
__device__ inline float activated(float gate, float up, float limit, float alpha) {
  if (limit == 0) return gate / (1.0f + expf(-gate)) * up;
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : (up < -limit ? -limit : up);
  return (u + 1.0f) * (g / (1.0f + expf(-alpha * g)));
}

}  // namespace heddle::ops
