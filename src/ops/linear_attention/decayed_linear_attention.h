// SPDX-License-Identifier: Apache-2.0
// Linear attention whose states decay by one number a head and token, for all value heads of all
// sequences; one state S [Dk, Dv] per value head (kept transposed, [Dv, Dk]). It is the recurrence
// of Mamba-2 (Dao and Gu, "Transformers are SSMs", arXiv:2405.21060), whose x, B and C are v, k and
// q:
//
//   dt = clamp(softplus(a + dt_bias), dt_low, dt_high)
//   S <- exp(dt decay) S + k (dt v)'       y = S'q + skip v
//
// value head j reads key head floor(j * Nk / Nv). Without a, dt is 1 and a head decays by the same
// factor at every token: lightning attention (Qin et al., arXiv:2401.04658).
//
// The inputs of the time step, a, are fp32 in every run, as gates of the delta rule are
// (gated_delta_rule.h).
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/forward_context.h"

namespace heddle::ops {

struct DecayedLinearAttentionArgs {
  TensorView vkq;       // [T, Nv * Dv + 2 * Nk * Dk], activations(context): v, k, q
  TensorView a;         // [T, Nv] f32, input of the time steps; null: dt is 1
  TensorView decay;     // [Nv] f32, at most 0: -exp(A_log), or the log of a constant decay
  TensorView dt_bias;   // bias of the time steps [Nv] f32, if `a` is given
  TensorView skip;      // [Nv] f32, factor of v in the output; null: 0
  MutableTensorView y;  // output [T, Nv * Dv], dtype of vkq
  int64_t num_key_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float dt_low = 0;
  float dt_high = std::numeric_limits<float>::infinity();
  StateLayer state;  // recurrent [slots, Nv, Dv, Dk]; sequences without earlier tokens read zeros
  SnapshotLayer snapshots;  // pool that snapshots are written to; null: `state`
  const ForwardContext* forward = nullptr;
  std::span<std::byte> workspace;  // of decayed_linear_attention_workspace_bytes()
};

// The largest Dk that CUDA kernels support: a warp keeps rows of the state in registers.
inline constexpr int64_t kMaxCudaDecayedKeyDim = 1024;

struct DecayedLinearAttentionSizes {
  int64_t max_tokens = 0;  // rows of the largest step
  int64_t key_dim = 0;
  int64_t value_dim = 0;
};

// Bytes of workspace for steps of these sizes; 0 on CUDA.
int64_t decayed_linear_attention_workspace_bytes(const Context& context,
                                                 const DecayedLinearAttentionSizes& sizes);
int64_t decayed_linear_attention_workspace_bytes_cpu(const CpuContext& context,
                                                     const DecayedLinearAttentionSizes& sizes);

// Advances the slot of each sequence in place. A snapshot's slot gets the state after exactly
// num_tokens, rounded once from the fp32 accumulators to the snapshot format. A node of a tree
// starts from its parent's state and stores its own in its slot (ForwardContext::tree_starts).
// The CPU computes sequences of at least kChunkedMinTokens in chunks that begin at a sequence's
// first row of the step; a snapshot inside a chunk splits it. CUDA does so for bf16 prompts
// (decayed_linear_attention_chunks.cu). In exact mode every token uses the recurrent form: results
// are bitwise equal for any chunking, batch and number of threads. Decode reads and writes the
// state once, 8 * Nv * Dv * Dk bytes a sequence for 5 / 8 operations a byte: bandwidth-bound.
// Allocates nothing. Error: kInvalidArgument, naming the tensor that does not fit; ids of the batch
// must have been checked (check_batch()).
Status decayed_linear_attention(Context& context, const DecayedLinearAttentionArgs& args);
Status decayed_linear_attention_cpu(CpuContext& context,
                                    const DecayedLinearAttentionArgs& args);  // args checked
Status decayed_linear_attention_cuda(CudaContext& context,
                                     const DecayedLinearAttentionArgs& args);  // args checked

}  // namespace heddle::ops
