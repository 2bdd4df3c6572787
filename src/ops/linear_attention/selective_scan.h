// SPDX-License-Identifier: Apache-2.0
// The selective scan of a Mamba layer: every channel has N state numbers, each with its own decay.
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

// The most numbers of state that a channel may have: a CUDA thread has them in registers.
inline constexpr int64_t kMaxScanStates = 64;

struct SelectiveScanArgs {
  TensorView x;              // [T, C] activations(context): after the convolution
  TensorView dt;             // [T, C] f32: dt_in
  TensorView b;              // [T, N] as x: B
  TensorView c;              // [T, N] as x: C
  TensorView z;              // [T, C] as x
  TensorView neg_exp_a_log;  // [C, N] f32: -exp(A_log)
  TensorView dt_bias;        // [C] f32
  TensorView skip;           // [C] f32: D
  MutableTensorView y;       // [T, C] as x; may be x or z
  StateLayer state;          // recurrent [slots, 1, C, N]; read as zeros when no token precedes
  SnapshotLayer snapshots;   // where snapshots are written; without memory: to `state`
  const ForwardContext* forward = nullptr;
};

// The slot of each sequence is advanced in place; a snapshot's slot gets the state after exactly
// num_tokens, rounded once to the format of snapshots (a row: the N numbers of a channel). A node
// of a tree starts from its parent's state and leaves its own in its slot
// (ForwardContext::tree_starts). Token after token in either mode: bitwise the same for any
// chunking, batch and threads. Decode moves the state in and out once, 8 C N bytes a sequence;
// prefill is bound by T C N exponentials. Allocates nothing. Error: kInvalidArgument, naming the
// tensor that does not fit; the ids of the batch are taken for checked (check_batch()).
Status selective_scan(Context& context, const SelectiveScanArgs& args);
Status selective_scan_cpu(CpuContext& context, const SelectiveScanArgs& args);    // args checked
Status selective_scan_cuda(CudaContext& context, const SelectiveScanArgs& args);  // args checked

}  // namespace heddle::ops
