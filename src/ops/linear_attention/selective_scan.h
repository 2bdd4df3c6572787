// SPDX-License-Identifier: Apache-2.0
// The selective scan of a Mamba layer: every channel has N state numbers, each with a different
// decay.
//
//   dt = softplus(dt_in[t, c] + dt_bias[c])
//   h[c, n] <- exp(dt A[c, n]) h[c, n] + dt x[t, c] B[t, n]            A = neg_exp_a_log
//   y[t, c] = (sum over n of C[t, n] h[c, n] + skip[c] x[t, c]) silu(z[t, c])
//
// Gu and Dao, "Mamba", arXiv:2312.00752.
#pragma once

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/forward_context.h"

namespace heddle::ops {

// Most state numbers that a channel may have: a CUDA thread keeps them in registers.
inline constexpr int64_t kMaxScanStates = 64;

struct SelectiveScanArgs {
  TensorView x;              // input [T, C] after the convolution, activations(context)
  TensorView dt;             // [T, C] f32: dt_in, input of the time steps
  TensorView b;              // [T, N] as x: B, per token
  TensorView c;              // [T, N] as x: C, per token
  TensorView z;              // gate [T, C] as x
  TensorView neg_exp_a_log;  // [C, N] f32: -exp(A_log), the decay rates
  TensorView dt_bias;        // bias of the time steps [C] f32
  TensorView skip;           // [C] f32: D, factor of x in the output
  MutableTensorView y;       // output [T, C] as x; may be x or z
  StateLayer state;          // recurrent [slots, 1, C, N]; taken as zeros if no token precedes
  SnapshotLayer snapshots;   // pool that snapshots are written to; without memory: `state`
  const ForwardContext* forward = nullptr;
};

// Advances the state slot of each sequence in place. A snapshot's slot gets the state after exactly
// num_tokens, rounded once to the format of snapshots, whose rows are the N numbers of a channel. A
// node of a tree starts from its parent's state and stores the result in its own slot
// (ForwardContext::tree_starts). Both modes compute token by token: results are bitwise the same
// for any chunking, batch and number of threads. Decode reads and writes the state once, 8 C N
// bytes a sequence; prefill is bound by T C N exponentials. Allocates nothing. Error:
// kInvalidArgument, naming the tensor that does not fit; the ids of the batch must have been
// checked (check_batch()).
Status selective_scan(Context& context, const SelectiveScanArgs& args);
Status selective_scan_cpu(CpuContext& context, const SelectiveScanArgs& args);    // args checked
Status selective_scan_cuda(CudaContext& context, const SelectiveScanArgs& args);  // args checked

}  // namespace heddle::ops
