// SPDX-License-Identifier: Apache-2.0
// sample_rows: rows of logits become tokens, where the logits are. The order of operations is that
// of sampling/sampler.h, before which a mask of the vocabulary may set tokens to -inf; equal logits
// give the token that a Sampler draws, bit for bit, in any batch and on any device.
//
// A row says which batch slot it draws for, at which position, and which tokens lie on the path
// from the slot's output to it (drafts; none where a sequence draws its next token). Tables
// by batch slot hold the values that stay the same while a sequence runs.
//
// Nothing is sorted but the few candidates of a row: the largest logit of every 256 neighbouring
// tokens (a tile) tells which tiles can hold one of the top k, a histogram of the weights over
// 96 levels of an eighth of a natural logarithm how far down top_p reaches. The remaining tokens,
// usually tens, are ranked in shared memory; a row that leaves more than 2,048 of them, as an even
// distribution under top_p does, is cut by the digits of its logits instead, in six more passes,
// for which a GPU has up to eight blocks where rows are few.
//
// A top_k of at most 64 leaves so few candidates that top_p hardly ever needs the mass of all
// tokens to the last bit: it is estimated within 2^-15 while the maxima are looked for
// (TotalEstimate), and summed only where a candidate lies so near the limit, or where equal logits
// leave more than 256 of them after all.
//
// Cost: each row is read once for the maxima and, unless DrawKind says otherwise, once for the sums
// of the weights; three launches, or one. 4 V bytes a row come from memory, and 2 V of counts where
// it has penalties; the second reading is the cache's but forms an exponential a token, some 35
// instructions. Predicted for an H200 at 4.2 TB/s and V 151,936: 64 rows under top-k 20 and top-p
// 0.8 18 us (9.3 for the bytes, 3 for the estimates, the rest ranking and the launch), one row 8
// us, all latency. Measured: 19.5 and 10.2 us, without estimates 43 and 14.3; open rows 35 and 9.6
// us; rows cut by digits 216 and 86; greedy rows 15.5 and 5.4.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/sampling/logit_edits.h"

namespace heddle::ops {

inline constexpr int32_t kMostTopLogits = 20;
inline constexpr int32_t kMostOnPath = 64;  // tokens between the counts and a draw

// Parameters of a batch slot, as sampling/sampling_slot.h derives them from a request.
struct SamplingSlot {
  uint64_t seed = 0;
  double min_p_reach = 0;  // temperature * log(min_p); -infinity without min_p
  int64_t min_length = 0;  // the forbidden tokens are forbidden at positions below
  float inverse_temperature = 1;
  float top_p = 1;            // 1: off
  int32_t top_k = 0;          // 0: off; else below V
  int32_t greedy = 0;         // not 0: the best token
  int32_t choice_index = 0;   // part of the random number
  int32_t top_logprobs = -1;  // -1: no logprobs; else so many alternatives, at most 20
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int32_t counts_row = -1;      // row of `counts`; -1 if nothing is penalised
  int32_t forbidden_begin = 0;  // first of the slot's tokens in `forbidden`
  int32_t num_forbidden = 0;
  int32_t biases_begin = 0;  // first of the slot's entries in `biases`
  int32_t num_biases = 0;

  friend bool operator==(const SamplingSlot&, const SamplingSlot&) = default;
};

struct TokenBias {
  int32_t token = 0;
  float bias = 0;

  friend bool operator==(const TokenBias&, const TokenBias&) = default;
};

struct SamplingRow {
  int32_t slot = -1;      // -1: a pad or an ended row; draws nothing
  int32_t mask_row = -1;  // row of `masks`; -1: no mask
  int64_t position = 0;   // absolute index of the token that is drawn, less the position_shift

  // Bit i: path_tokens[path_begin + i] is drawn before this token, and not in the counts.
  uint64_t path = 0;
  int32_t path_begin = 0;

  int32_t publish = 0;  // not 0: the token is written to `drawn`; at most one row of a slot

  friend bool operator==(const SamplingRow&, const SamplingRow&) = default;
};

inline constexpr int32_t kFewTokens = 64;

// Kinds of draws, by the work that they need; each does what those after it do, too.
enum class DrawKind {
  kAny,
  kFew,   // no logprobs, and a top_k of at most kFewTokens
  kBest,  // the best token, no logprobs
};

[[nodiscard]] DrawKind draw_kind(const SamplingSlot& slot);

enum class SampleOutcome : int32_t {
  kDrawn,
  kSkipped,  // the row has no slot
  kNotANumber,
  kInfinite,
  kAllMasked,
  kPending,  // never written: a caller may put it there before and look until it is gone
};

struct SampledRow {
  int32_t token = -1;  // -1 unless something was drawn
  SampleOutcome outcome = SampleOutcome::kSkipped;

  // Only if the slot wants logprobs (sampling/log_softmax.h makes them):
  float logit = 0;  // logit of the token, after the penalties
  float max = 0;
  uint64_t total = 0;  // sum of the row's weights
  int32_t num_top_logits = 0;
  int32_t reserved = 0;
};

struct TopLogit {
  int32_t token = 0;
  float logit = 0;
};

// Pointers lead into memory of the context's device; `sampled` and `top_logits`, which are only
// written, may also lead into pinned memory of the host. Tables that no row or slot refers to may
// be null.
struct SampleRowsArgs {
  MutableTensorView logits;  // [R, V] fp32; rows with a mask, a bias or a penalty are edited
  const SamplingRow* rows = nullptr;  // [R]
  int64_t position_shift = 0;  // added to all positions: the rows were written for an earlier step
  const SamplingSlot* slots = nullptr;   // [slots], the ids in rows
  const TokenCount* counts = nullptr;    // [counts rows, V]: how often the output has a token
  const int32_t* forbidden = nullptr;    // lists of the slots
  const TokenBias* biases = nullptr;     // lists of the slots, no token twice in one
  const int32_t* path_tokens = nullptr;  // the tokens that `path` and `path_begin` refer to
  const uint32_t* masks = nullptr;       // [mask rows, ceil(V / 32)]; a bit that is 0 masks
  DrawKind kind = DrawKind::kAny;        // the kind of all slots that rows name, or one before it
  const int32_t* ended = nullptr;        // [R], not 0: the row is an ended one whatever `rows` says
  int32_t* drawn = nullptr;              // [slots], -1 where a published draw failed
  SampledRow* sampled = nullptr;         // [R]

  // The host looks at `sampled`, in its memory, until no outcome is kPending: then the token is
  // there, of rows that want logprobs all, their alternatives too. With `tells_all` also what
  // kernels before these have written in the host's memory, for some 0.5 us.
  bool is_watched = false;
  bool tells_all = false;

  TopLogit* top_logits = nullptr;  // [R, 20], best first; may be null without logprobs
  std::span<std::byte> workspace;  // sample_rows_workspace_bytes(), on 8 bytes
};

// Grows by R; the largest R of a captured size is enough for the smaller ones.
[[nodiscard]] int64_t sample_rows_workspace_bytes(int64_t num_rows, int64_t vocab_size);

// Ids in the tables are not looked at here: tokens lie in [0, V), slots and list entries exist.
// Capturable: allocates nothing, reads nothing back, never waits; the launches depend on R, V and
// kind alone. On the CPU rows are spread over the pool.
// Error: kInvalidArgument naming what disagrees; V is at most 2^20 - 1.
Status sample_rows(Context& context, const SampleRowsArgs& args);

Status sample_rows_cpu(CpuContext& context, const SampleRowsArgs& args);    // args already checked
Status sample_rows_cuda(CudaContext& context, const SampleRowsArgs& args);  // args already checked

}  // namespace heddle::ops
