// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding. A head has D channels, of which R = 2 * |f| are rotated:
//     angle_i = f[i] * position                                        i in [0, R/2)
//     y[a] = factor * (x[a] * cos(angle_i) - x[b] * sin(angle_i))
//     y[b] = factor * (x[b] * cos(angle_i) + x[a] * sin(angle_i))
// The pairs are a = first + i, b = a + R/2 (halves) or a = first + 2i, b = a + 1 (interleaved, the
// DeepSeek families). Other channels are copied. Su et al., "RoFormer", arXiv:2104.09864.
//
// With two tables, the rows whose position has the bit kLongRope are rotated by the second table.
// With one table the bit is ignored.
//
// With axes, a row has a position on each of several axes, and each pair turns by its own axis:
//     angle_i = f[i] * position[axes[i]]
// The patches of a picture have a row and a column (2-D), tokens of models that see pictures a
// time, a row and a column (Wang et al., arXiv:2409.12191). Where all axes agree the
// bits are those of one position.
//
// With a weight [D], each head is RMS-normalised first (query and key norm of the Qwen3 families).
#pragma once

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/op_def.h"

namespace heddle::ops {

// Bit of a position. It says that the row belongs to a sequence that is longer than the first table
// supports (longrope), and is rotated by the second table. No position is that large.
inline constexpr int32_t kLongRope = 1 << 30;

[[nodiscard]] inline int32_t rope_position(int64_t position, bool takes_long_rope) {
  return static_cast<int32_t>(position) | (takes_long_rope ? kLongRope : 0);
}

struct RopeArgs {
  TensorView x;                    // input [T, N*D], activations(context)
  TensorView norm_weight;          // [D] f32, or without memory
  TensorView positions;            // [T] i32, >= 0, with or without the bit kLongRope; with axes
                                   // [T, A], A of at most kMaxAxes
  TensorView inverse_frequencies;  // [R/2] or [2, R/2] f32; with axes [R/2]
  MutableTensorView y;             // [T, N*D] as x; may be x itself
  int64_t head_dim = 0;            // D, channels of a head
  int64_t first_channel = 0;       // first rotated channel of a head
  bool interleaved = false;
  float factor = 1.0f;    // factor of sine and cosine (yarn)
  float epsilon = 1e-6f;  // epsilon of the norm
  TensorView axes = {};   // [R/2] i32, each below A; or without memory

  [[nodiscard]] int64_t num_pairs() const {  // R/2: half the number of rotated channels
    return inverse_frequencies.shape[inverse_frequencies.shape.rank() - 1];
  }
};

// Angles are products in fp32, as the reference models form them; sine and cosine are taken once
// per row. Computed in fp32, the norm included, and rounded once. Rows are independent. Allocates
// nothing; R/2 is at most 256. Error: kInvalidArgument, naming the tensor and the dimension that
// disagree; kUnimplemented with axes on CUDA.
Status rope(Context& context, const RopeArgs& args);
Status rope_cpu(CpuContext& context, const RopeArgs& args);    // args already checked
Status rope_cuda(CudaContext& context, const RopeArgs& args);  // args already checked

// y[t] = 1 + beta * ln(1 + floor(positions[t] / length)): a factor for queries that keeps attention
// over many tokens sharp (Llama 4, Ministral 3).
struct PositionScaleArgs {
  TensorView positions;  // [T]    i32, >= 0, with or without the bit kLongRope
  MutableTensorView y;   // factors [T, 1] f32
  double beta = 0;
  int64_t length = 1;  // context length in tokens that the model was first trained with
};

// Computed in double and rounded once. Error: kInvalidArgument, naming the argument that does not
// fit.
Status position_scale(Context& context, const PositionScaleArgs& args);
Status position_scale_cpu(CpuContext& context, const PositionScaleArgs& args);    // args checked
Status position_scale_cuda(CudaContext& context, const PositionScaleArgs& args);  // args checked

inline constexpr int64_t kMaxRotaryPairs = 256;
inline constexpr int64_t kMaxAxes = 8;

// The arguments of a graph node "rope" or "qk_norm_rope".
RopeArgs rope_args(const LaunchArgs& args);

}  // namespace heddle::ops
