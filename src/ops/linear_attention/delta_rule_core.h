// SPDX-License-Identifier: Apache-2.0
// The gated delta rule for one value head of one sequence, given its gates. There are two functions
// for the same recurrence over a state S [Dk, Dv], which is stored transposed:
//
//   S <- exp(g) S        e = v - S'k        S <- S + k (beta e)'        y = S'q
//
// Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464. With a decay per key
// channel, S <- diag(exp(g)) S, it is Kimi Delta Attention (Kimi Team, "Kimi Linear",
// arXiv:2510.26692). q and k are given as computed by the layer: here both are divided by sqrt(sum
// of squares + 1e-6), and q is multiplied by 1 / sqrt(Dk).
//
// A DeltaRuleHead may also be a range of a head's value rows, which are independent of each other.
#pragma once

#include <cstdint>
#include <span>

#include "ops/forward_context.h"

namespace heddle::ops {

// A log decay per token and key channel, at most 0: g = neg_exp_a_log * softplus(f + dt_bias).
// Kernels compute g for a block of tokens at a time, because all of it would need as much memory as
// the keys.
struct ChannelDecay {
  const float* f = nullptr;  // [n, Dk], rows `stride` apart; null: the head has one decay per token
  int64_t stride = 0;
  const float* dt_bias = nullptr;  // [Dk] bias of the decays
  float neg_exp_a_log = 0;         // -exp(A_log), factor of the decays
};

struct DeltaRuleHead {
  const float* q = nullptr;  // [n, Dk]; rows are `q_stride` apart
  const float* k = nullptr;  // [n, Dk]; rows are `k_stride` apart
  const float* v = nullptr;  // [n, Dv]; rows are `v_stride` apart
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  const float* g = nullptr;  // [n] log decays, at most 0; not read with a decay per channel
  ChannelDecay channel;
  const float* beta = nullptr;  // [n] step sizes of the delta rule
  float* y = nullptr;           // [n, Dv] outputs
  int64_t y_stride = 0;
  float* state = nullptr;  // [Dv, Dk] state, advanced in place
  int64_t num_tokens = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
};

// The part of a head that has tokens [begin, end).
inline DeltaRuleHead tokens_of(DeltaRuleHead head, int64_t begin, int64_t end) {
  head.q += begin * head.q_stride;
  head.k += begin * head.k_stride;
  head.v += begin * head.v_stride;
  head.y += begin * head.y_stride;
  if (head.g != nullptr) head.g += begin;
  if (head.channel.f != nullptr) head.channel.f += begin * head.channel.stride;
  head.beta += begin;
  head.num_tokens = end - begin;
  return head;
}

// Where to store copies of the state after some of a head's tokens. `first_row` is the head's first
// value row in a snapshot slot, counted over all value heads.
struct DeltaSnapshots {
  // Wanted copies, in ascending order of num_tokens, without duplicates.
  std::span<const StateSnapshot> wanted;
  SnapshotLayer layer;
  int64_t first_row = 0;
};

// Tokens of a chunk in the chunked form. The products with the state cost the same for any chunk
// size, the products inside a chunk grow with it: on a CPU small chunks are fastest (512 tokens of
// a 128 x 128 state on one core with AVX-512: 394 us with 16, 411 with 32, 471 with 64). Snapshots
// are taken at multiples of 64 tokens, which 16 divides.
inline constexpr int64_t kDeltaChunk = 16;

// Value rows that a task computes; both forms process this many at a time.
inline constexpr int64_t kDeltaSlabRows = 64;

// Number of floats of scratch memory that a call of either form needs.
int64_t delta_rule_scratch_floats(int64_t key_dim, int64_t value_dim, bool channel_decay);

// Computes token by token, always by the same fp32 operations: dividing the tokens among several
// calls gives the same bits. Cost: 4 operations per state element and token; for one token bound by
// reading and writing the state.
void delta_rule_recurrent(const DeltaRuleHead& head, float* scratch);

// Computes chunk by chunk, as matrix products; about 3 operations per state element and token, and
// the state is transposed before and after. Chunks have kDeltaChunk tokens, counted from the head's
// first token: equal divisions into chunks give equal bits. If a snapshot divides a chunk, the rest
// of that chunk is computed next, so that later chunks begin where they would without the snapshot.
// A snapshot in fp32 costs no more than storing its memory.
void delta_rule_chunked(const DeltaRuleHead& head, const DeltaSnapshots& snapshots, float* scratch);

// Inputs of the gates of one value head: the layer's a and b and the head's parameters.
struct DeltaGates {
  const float* a = nullptr;  // [n], `a_stride` apart; null: only beta is computed
  const float* b = nullptr;
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  float neg_exp_a_log = 0;  // -exp(A_log), factor of the decay
  float dt_bias = 0;
  float beta_scale = 1;
  int64_t num_tokens = 0;
};

// g = neg_exp_a_log * softplus(a + dt_bias), beta = beta_scale * sigmoid(b).
void delta_rule_gates(const DeltaGates& gates, float* g, float* beta);

}  // namespace heddle::ops
