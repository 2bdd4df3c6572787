// SPDX-License-Identifier: Apache-2.0
// The gated delta rule for one value head of one sequence, given its gates. Two forms of the same
// recurrence over a state S [Dk, Dv], kept transposed:
//
//   S <- exp(g) S        e = v - S'k        S <- S + k (beta e)'        y = S'q
//
// Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464. With a decay per key
// channel, S <- diag(exp(g)) S, it is Kimi Delta Attention (Kimi Team, "Kimi Linear",
// arXiv:2510.26692). q and k are given raw:
// both are divided by sqrt(sum of squares + 1e-6), and q is multiplied by 1 / sqrt(Dk).
//
// A head may also be a range of the value rows of a head: they are independent of each other.
#pragma once

#include <cstdint>
#include <span>

#include "ops/forward_context.h"

namespace heddle::ops {

// A log decay per token and key channel, at most 0: g = neg_exp_a_log * softplus(f + dt_bias). The
// kernels form it a block at a time: all of it would be as large as the keys.
struct ChannelDecay {
  const float* f = nullptr;  // [n, Dk], rows `stride` apart; null: the head has one decay per token
  int64_t stride = 0;
  const float* dt_bias = nullptr;  // [Dk]
  float neg_exp_a_log = 0;         // -exp(A_log)
};

struct DeltaRuleHead {
  const float* q = nullptr;  // [n, Dk], rows `q_stride` apart
  const float* k = nullptr;  // [n, Dk]
  const float* v = nullptr;  // [n, Dv]
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  const float* g = nullptr;  // [n] log decay, at most 0; not read with a channel decay
  ChannelDecay channel;
  const float* beta = nullptr;  // [n]
  float* y = nullptr;           // [n, Dv]
  int64_t y_stride = 0;
  float* state = nullptr;  // [Dv, Dk], advanced in place
  int64_t num_tokens = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
};

// Tokens [begin, end) of a head.
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

// Copies of the state after so many tokens of a head. `first_row` of their slots, counted over
// value heads, is the head's first value row.
struct DeltaSnapshots {
  std::span<const StateSnapshot> wanted;  // ascending, each once
  SnapshotLayer layer;
  int64_t first_row = 0;
};

// Tokens of a chunk of the chunked form. The products with the state cost the same for any size,
// those inside a chunk grow with it: on a CPU small chunks win (512 tokens of a 128 x 128 state on
// one core with AVX-512: 394 us with 16, 411 with 32, 471 with 64). Divides the snapshot grid
// of 64.
inline constexpr int64_t kDeltaChunk = 16;

// Value rows per task; both forms process this many at a time.
inline constexpr int64_t kDeltaSlabRows = 64;

// Scratch of one call of either form.
int64_t delta_rule_scratch_floats(int64_t key_dim, int64_t value_dim, bool channel_decay);

// Token by token, each by the same fp32 operations: any split of the tokens over calls gives the
// same bits. Cost: 4 operations per state element and token; for one token bound by moving the
// state.
void delta_rule_recurrent(const DeltaRuleHead& head, float* scratch);

// Chunk by chunk, as matrix products; about 3 operations per state element and
// token, and the state is transposed at both ends. Chunks have kDeltaChunk tokens, counted from the
// head's first: equal partitions give equal bits. A chunk that a snapshot cuts is followed by its
// own rest, so that later chunks lie where they would without it; a snapshot in fp32 costs no
// more than the stores of its own memory.
void delta_rule_chunked(const DeltaRuleHead& head, const DeltaSnapshots& snapshots, float* scratch);

// The parameters that turn a layer's a and b into gates, for one value head.
struct DeltaGates {
  const float* a = nullptr;  // [n], `a_stride` apart; null: only beta is wanted
  const float* b = nullptr;
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  float neg_exp_a_log = 0;  // -exp(A_log)
  float dt_bias = 0;
  float beta_scale = 1;
  int64_t num_tokens = 0;
};

// g = neg_exp_a_log * softplus(a + dt_bias), beta = beta_scale * sigmoid(b).
void delta_rule_gates(const DeltaGates& gates, float* g, float* beta);

}  // namespace heddle::ops
