// SPDX-License-Identifier: Apache-2.0
// sample_rows: draws tokens from rows of logits, on the device that has the logits. The order of
// operations is that of sampling/sampler.h; before it, a mask of the vocabulary may set tokens to
// -inf. For equal logits it draws the token that a Sampler draws, bit for bit, in any batch and on
// any device.
//
// A row names the batch slot that it draws for, the position of the drawn token, and the tokens on
// the path from the slot's output to the row (drafts; none if a sequence draws its next token).
// Tables indexed by batch slot hold the parameters that stay the same while a sequence runs.
//
// Only the few candidates of a row are sorted. The largest logit of every 256 neighbouring tokens
// (a tile) tells which tiles can hold one of the top k; a histogram of the weights over 96 levels
// of an eighth of a natural logarithm tells how deep top_p reaches. The remaining tokens, usually
// tens, are ranked in shared memory. If more than 2,048 remain, as with an even distribution under
// top_p, the row is cut by the digits of its logits instead, in six more passes, for which a GPU
// uses up to eight blocks if there are few rows.
//
// A top_k of at most 64 leaves so few candidates that top_p hardly ever needs the exact mass of all
// tokens. The mass is estimated within 2^-15 together with the maxima (TotalEstimate), and summed
// only if a candidate is too near the limit, or if equal logits leave more than 256 candidates
// after all.
//
// Cost: each row is read once for the maxima and, depending on DrawKind, once for the sums of the
// weights; three launches, or one. 4 V bytes a row come from memory, and 2 V bytes of counts if the
// row has penalties. The second reading comes from the cache but computes an exponential for each
// token, some 35 instructions. Predicted for an H200 at 4.2 TB/s and V 151,936: 64 rows with top-k
// 20 and top-p 0.8 18 us (9.3 for the bytes, 3 for the estimates, the rest ranking and the launch),
// one row 8 us, all latency. Measured: 19.5 and 10.2 us, without estimates 43 and 14.3; rows
// without top_k, top_p and min_p 35 and 9.6 us; rows cut by digits 216 and 86; greedy rows 15.5 and
// 5.4.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/sampling/logit_edits.h"

namespace heddle::ops {

inline constexpr int32_t kMostTopLogits = 20;
// Most drafts on the path between a slot's counted output and a draw.
inline constexpr int32_t kMostOnPath = 64;

// Sampling parameters of a batch slot; sampling/sampling_slot.h computes them from a request.
struct SamplingSlot {
  uint64_t seed = 0;
  double min_p_reach = 0;  // temperature * log(min_p); -infinity without min_p
  int64_t min_length = 0;  // at positions below this, the forbidden tokens are not drawn
  float inverse_temperature = 1;
  float top_p = 1;            // share of the mass that top_p keeps; 1: no top_p
  int32_t top_k = 0;          // tokens that top_k keeps, below V; 0: no top_k
  int32_t greedy = 0;         // not 0: the best token is drawn
  int32_t choice_index = 0;   // index of the choice, an input of the random number
  int32_t top_logprobs = -1;  // number of alternatives to list, at most 20; -1: no logprobs
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int32_t counts_row = -1;      // row of `counts`; -1 if the slot has no penalties
  int32_t forbidden_begin = 0;  // index in `forbidden` of the slot's first token
  int32_t num_forbidden = 0;
  int32_t biases_begin = 0;  // index in `biases` of the slot's first entry
  int32_t num_biases = 0;

  friend bool operator==(const SamplingSlot&, const SamplingSlot&) = default;
};

struct TokenBias {
  int32_t token = 0;
  float bias = 0;

  friend bool operator==(const TokenBias&, const TokenBias&) = default;
};

struct SamplingRow {
  // Batch slot; -1: the row is padding or its sequence has ended, and nothing is drawn.
  int32_t slot = -1;
  int32_t mask_row = -1;  // row of `masks`; -1: the row has no mask
  int64_t position = 0;   // absolute index of the drawn token, minus SampleRowsArgs::position_shift

  // Bit i: path_tokens[path_begin + i] comes before the drawn token and is not in the counts yet.
  uint64_t path = 0;
  int32_t path_begin = 0;

  // Not 0: the token is written to `drawn`; at most one row of a slot may have it.
  int32_t publish = 0;

  friend bool operator==(const SamplingRow&, const SamplingRow&) = default;
};

inline constexpr int32_t kFewTokens = 64;

// Kinds of draws, from the most to the least general; an earlier kind can do everything that the
// later ones do.
enum class DrawKind {
  kAny,
  kFew,   // no logprobs, and a top_k of at most kFewTokens
  kBest,  // greedy: the best token, no logprobs
};

[[nodiscard]] DrawKind draw_kind(const SamplingSlot& slot);

enum class SampleOutcome : int32_t {
  kDrawn,
  kSkipped,  // nothing was drawn, because the row has no slot
  kNotANumber,
  kInfinite,
  kAllMasked,
  kPending,  // never written here: a caller may store it first and poll until it is overwritten
};

struct SampledRow {
  int32_t token = -1;  // the drawn token; -1 if no token was drawn
  SampleOutcome outcome = SampleOutcome::kSkipped;

  // These members are set only if the slot wants logprobs (sampling/log_softmax.h computes them).
  float logit = 0;  // logit of the drawn token, after the penalties
  float max = 0;
  uint64_t total = 0;  // sum of the weights of the row's tokens
  int32_t num_top_logits = 0;
  int32_t reserved = 0;
};

struct TopLogit {
  int32_t token = 0;
  float logit = 0;
};

// All pointers are into memory of the context's device; `sampled` and `top_logits`, which are only
// written, may also be pinned host memory. Tables that no row or slot refers to may be null.
struct SampleRowsArgs {
  // [R, V] fp32; rows with a mask, a bias or a penalty are changed in place.
  MutableTensorView logits;
  const SamplingRow* rows = nullptr;  // [R], one for each row of logits
  int64_t position_shift = 0;  // added to all positions: the rows were written for an earlier step
  const SamplingSlot* slots = nullptr;  // [slots] parameters of the batch slots
  // [counts rows, V]: how often each token occurred in the output.
  const TokenCount* counts = nullptr;
  const int32_t* forbidden = nullptr;  // lists of forbidden tokens that slots refer to
  const TokenBias* biases = nullptr;   // lists of biases that slots refer to, no token twice in one
  const int32_t* path_tokens = nullptr;  // the tokens that `path` and `path_begin` refer to
  const uint32_t* masks = nullptr;  // [mask rows, ceil(V / 32)]: a bit for each token; 0 forbids it
  // kind of draw of all rows: their least general common kind, or a more general one
  DrawKind kind = DrawKind::kAny;
  // [R], not 0: the sequence has ended and nothing is drawn, whatever `rows` says.
  const int32_t* ended = nullptr;
  int32_t* drawn = nullptr;       // [slots]: the published token; -1 if the draw failed
  SampledRow* sampled = nullptr;  // [R]: results

  // The host polls `sampled`, in host memory, until no outcome is kPending: then the row's token is
  // there and, if it wants logprobs, so are its other members and alternatives. With `tells_all`
  // the host can then also read what earlier kernels wrote to host memory; this costs some 0.5 us.
  bool is_watched = false;
  bool tells_all = false;

  TopLogit* top_logits = nullptr;  // [R, 20] alternatives, best first; may be null without logprobs
  std::span<std::byte> workspace;  // of sample_rows_workspace_bytes(), 8-byte aligned
};

// Bytes of workspace. They grow with num_rows; the workspace for the largest captured size suffices
// for the smaller ones.
[[nodiscard]] int64_t sample_rows_workspace_bytes(int64_t num_rows, int64_t vocab_size);

// Ids in the tables are not checked here: tokens must be in [0, V), slots and list entries must
// exist. Can be captured: allocates nothing, reads nothing back and never waits; the launches
// depend on R, V and kind alone. On the CPU rows are divided among the pool's threads. Error:
// kInvalidArgument naming what disagrees; V is at most 2^20 - 1.
Status sample_rows(Context& context, const SampleRowsArgs& args);

Status sample_rows_cpu(CpuContext& context, const SampleRowsArgs& args);    // args already checked
Status sample_rows_cuda(CudaContext& context, const SampleRowsArgs& args);  // args already checked

}  // namespace heddle::ops
