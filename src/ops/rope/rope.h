// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding, half-rotation layout. Per head of D channels, with R = 2 * |f|:
//     angle_i = f[i] * position                                        i in [0, R/2)
//     y[i]       = factor * (x[i] * cos(angle_i) - x[i + R/2] * sin(angle_i))
//     y[i + R/2] = factor * (x[i + R/2] * cos(angle_i) + x[i] * sin(angle_i))
// Channels from R on pass through. Su et al., "RoFormer", arXiv:2104.09864.
//
// With a weight [D], each head is RMS-normalised first (query and key norm of the Qwen3 families).
#pragma once

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/op_def.h"

namespace heddle::ops {

struct RopeArgs {
  TensorView x;                    // [T, N*D] f32
  TensorView norm_weight;          // [D] f32, or without memory
  TensorView positions;            // [T] i32, >= 0
  TensorView inverse_frequencies;  // [R/2] f32
  MutableTensorView y;             // [T, N*D] f32; may be x itself
  int64_t head_dim = 0;            // D
  float factor = 1.0f;             // multiplies sine and cosine (yarn)
  float epsilon = 1e-6f;           // of the norm
};

// Angles are products in fp32, as the reference models form them; sine and cosine are taken once
// per row. Rows are independent. Allocates nothing; R/2 is at most 256. Error: kInvalidArgument,
// naming the tensor and the dimension that disagree.
Status rope(Context& context, const RopeArgs& args);
Status rope_cpu(CpuContext& context, const RopeArgs& args);  // args already checked

inline constexpr int64_t kMaxRotaryPairs = 256;

// "rope" {x, positions, inverse_frequencies} attrs {head_dim, factor} and
// "qk_norm_rope" {x, norm_weight, positions, inverse_frequencies} attrs {epsilon, head_dim,
// factor}.
std::span<const OpDef> rope_ops();

}  // namespace heddle::ops
