// SPDX-License-Identifier: Apache-2.0
// The recurrence of a Gated DeltaNet layer for all value heads of all sequences: gates, normalised
// queries and keys, and one state S [Dk, Dv] per value head (kept transposed, [Dv, Dk]).
//
//   g = neg_exp_a_log * softplus(a + dt_bias)     beta = beta_scale * sigmoid(b)
//   q, k: divided by sqrt(sum of squares + 1e-6), q also by sqrt(Dk); value head j reads key head
//   floor(j * Nk / Nv)
//   S <- exp(g) S       S <- S + k (beta (v - S'k))'       y = S'q
//
// The decay may be one per key channel instead, S <- diag(exp(g)) S. Then a and dt_bias have Dk
// numbers for every head (Kimi Delta Attention; Kimi Team, "Kimi Linear", arXiv:2510.26692).
//
// With beta_scale = 2 a token may reverse the state's sign along k: eigenvalues from -1 to 1
// (Grazzi et al., "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues",
// arXiv:2411.12537).
//
// The inputs of the gates, a and b, are fp32 in every run, because the decays of all tokens of a
// sequence are multiplied: the projection that computes a and b has fp32 results, like router
// scores (docs/numerics.md).
//
// Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464.
#pragma once

#include <cstddef>
#include <span>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/forward_context.h"

namespace heddle::ops {

struct GatedDeltaRuleArgs {
  // [T, 2 * Nk * Dk + Nv * Dv] activations(context): q, k, v after the convolution.
  TensorView qkv;
  TensorView a;              // [T, Nv] f32, or [T, Nv * Dk] with a decay per channel
  TensorView b;              // [T, Nv] f32, input of beta
  TensorView neg_exp_a_log;  // [Nv] f32: -exp(A_log), factor of the log decays
  TensorView dt_bias;        // [Nv] f32, or [Nv * Dk] with a decay per channel
  MutableTensorView y;       // output [T, Nv * Dv] as qkv
  int64_t num_key_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  float beta_scale = 1;     // factor of beta: 1 or 2
  StateLayer state;         // recurrent [slots, Nv, Dv, Dk]; taken as zeros if no token precedes
  SnapshotLayer snapshots;  // pool that snapshots are written to; without memory: `state`
  const ForwardContext* forward = nullptr;
  std::span<std::byte> workspace;  // of gated_delta_rule_workspace_bytes()
};

// Fewest tokens of a sequence in a step for which the chunked form is used. Measured on one core
// with AVX-512, recurrent against chunked: at 16 tokens 17.7 against 16.6 us for a 128 x 128 state,
// 5.3 against 4.7 us for 64 x 64; at 512 tokens 541 against 394 us and 162 against 127 us.
inline constexpr int64_t kChunkedMinTokens = 16;

// The largest Dk that CUDA kernels support: a warp keeps rows of the state in registers.
inline constexpr int64_t kMaxCudaKeyDim = 1024;

struct GatedDeltaRuleSizes {
  int64_t max_tokens = 0;  // rows of the largest step
  int64_t num_value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  bool channel_decay = false;
  DType dtype = DType::kF32;  // dtype of qkv
};

int64_t gated_delta_rule_workspace_bytes(const Context& context, const GatedDeltaRuleSizes& sizes);
int64_t gated_delta_rule_workspace_bytes_cpu(const CpuContext& context,
                                             const GatedDeltaRuleSizes& sizes);
int64_t gated_delta_rule_workspace_bytes_cuda(const CudaContext& context,
                                              const GatedDeltaRuleSizes& sizes);

// Advances the state slot of each sequence in place. A snapshot's slot gets the state after exactly
// num_tokens, taken from the fp32 accumulators and rounded once to the format of snapshots. A node
// of a tree starts from its parent's state and stores the result in its own slot
// (ForwardContext::tree_starts).
//
// On the CPU chunks start at a sequence's first row of the step, and a snapshot inside a chunk
// divides it. On CUDA only Hopper has a chunked form, with chunks that end at fixed positions
// (gated_delta_rule_sm90.h). In exact mode every token is computed in the recurrent form: results
// are bitwise the same for any chunking, batch and number of threads. Decode reads and writes the
// state once: bandwidth-bound. Allocates nothing. Error: kInvalidArgument, naming the tensor that
// does not fit; the ids of the batch must have been checked (check_batch()).
Status gated_delta_rule(Context& context, const GatedDeltaRuleArgs& args);
Status gated_delta_rule_cpu(CpuContext& context, const GatedDeltaRuleArgs& args);    // args checked
Status gated_delta_rule_cuda(CudaContext& context, const GatedDeltaRuleArgs& args);  // args checked

}  // namespace heddle::ops
