// SPDX-License-Identifier: Apache-2.0
// PrefillBudget: how many prompt tokens one scheduling pass may prefill, and for which requests.
//
// Four amounts, in tokens, shrink with every admission. A request that prefills n tokens, m of
// which need new pages, uses:
//   total   m rounded up to pages + a page + reserved output: memory, now and later
//   now     m rounded up to pages + a page: memory at once
//   input   n: new tokens of one pass
//   chunk   n: new tokens of one step
// The extra page covers a partly used one. Output is reserved when the prefill completes:
// min(tokens it may still draw, kNewTokensClip). The reference also rounds n up to pages, which
// wastes up to a page of every step's compute per request.
//
// A pass: construct the budget; resume() the requests in the middle of their prefill; then for each
// waiting request in order check(), admit(), and pin() the cached tokens it shares. The loop ends
// at the first verdict other than kAdmit, and when stop() does not return kAdmit. No request
// overtakes one that does not fit, except short prompts with reserved tokens: they are checked
// after kBudget too.
//
// Chunks that are not a prompt's last end on multiples of the grid, counted from the sequence's
// first token. If such a chunk would be empty and is the pass's first, it is not cut on the grid:
// progress is more important than alignment. At most one waiting request of a pass is cut, not
// counting requests that are cut because rows for scoring run out.
//
// Threading: thread-confined; a new value for each pass. Cost: O(1) a call, no allocation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <heddle/options.h>

namespace heddle::scheduler {

// Most output tokens expected of one request: limits of 2^30 are common and mean "until it ends".
constexpr int64_t kNewTokensClip = 4096;

// The output tokens that a request may still draw, clipped: min(max_new_tokens - output_tokens,
// clip), at least 0.
[[nodiscard]] constexpr int64_t new_tokens_left(int64_t max_new_tokens, int64_t output_tokens) {
  return std::clamp<int64_t>(max_new_tokens - output_tokens, 0, kNewTokensClip);
}

// NewTokenRatio: the share of the output still allowed to running requests that is reserved for
// them when others are admitted. Most requests end early, so the ratio begins below 1 and falls
// with every decode step that finds free pages. It rises when a retraction shows that it was too
// low.
class NewTokenRatio {
 public:
  // `conservativeness` > 0 (checked); with 1 the ratio begins at 0.7.
  explicit NewTokenRatio(double conservativeness);

  [[nodiscard]] double value() const { return value_; }

  [[nodiscard]] double initial() const { return initial_; }

  [[nodiscard]] double minimum() const { return minimum_; }

  // Tokens to reserve for the output of a running request.
  [[nodiscard]] double reserve(int64_t max_new_tokens, int64_t output_tokens) const {
    return static_cast<double>(new_tokens_left(max_new_tokens, output_tokens)) * value_;
  }

  // Lowers the new-token ratio. Called after a decode step without retraction.
  void decay();

  // Raises the ratio after a retraction, from the requests that remain, at least 1 (checked): the
  // sums of their output tokens so far and of their limits. It never lowers the ratio: running out
  // of pages is no reason for optimism.
  void after_retraction(int64_t sum_output_tokens, int64_t sum_max_new_tokens, int64_t num_running);

  // The ratio that the sums suggest. after_retraction() takes the larger of it and the present
  // ratio; the reference takes the estimate itself.
  [[nodiscard]] static double estimate(int64_t sum_output_tokens, int64_t sum_max_new_tokens,
                                       int64_t num_running);

  // Called when the engine is idle: returns to the initial ratio.
  void reset() { value_ = initial_; }

 private:
  double initial_;
  double minimum_;
  double step_;
  double value_;
};

struct PrefillLimits {
  int32_t page_size = 1;
  int64_t chunk_grid = 1;              // chunks end on multiples of the grid and of the page size
  int64_t max_prefill_tokens = 16384;  // most new tokens of a pass (input)
  int64_t chunk_tokens = 8192;         // most new tokens of a step (chunk); 0: prompts are never
                                       // cut
  bool pages_at_admission = false;     // the first chunk allocates the pages of the whole sequence
  bool round_compute = false;          // input and chunk are counted in whole pages

  // The reference's settings: pages of one token, no grid, pages allocated chunk by chunk, compute
  // counted in whole pages.
  [[nodiscard]] static PrefillLimits reference();
};

// Free resources at the start of the pass.
struct PrefillResources {
  int64_t free_tokens = 0;     // tokens in free and in evictable pages
  double reserved_tokens = 0;  // sum of NewTokenRatio::reserve() over the running requests
  int64_t mixed_tokens = 0;    // decode tokens of the same step; 0 without mixed batches
  int64_t free_batch_slots = std::numeric_limits<int64_t>::max();
  int64_t free_state_slots = std::numeric_limits<int64_t>::max();  // free and evictable state slots
  int64_t scored_rows = 0;  // rows of the step that can score prompt tokens
};

// The tokens and pages that one request needs.
struct PrefillDemand {
  int64_t context_tokens = 0;   // tokens that are computed or cached; the prefill begins after them
  int64_t pending_tokens = 0;   // tokens still to be computed; at least 1
  int64_t new_tokens_left = 0;  // max_new_tokens - output so far, at least 0
  int64_t held_tokens = 0;      // pending tokens for which pages are allocated already
  // Most tokens that this pass may compute of it.
  int64_t most_tokens = std::numeric_limits<int64_t>::max();
  // Most pending tokens for which there are rows to score them. A chunk cut there does not stop
  // another request from being cut.
  int64_t most_scored_tokens = std::numeric_limits<int64_t>::max();
};

enum class PrefillVerdict {
  kAdmit,
  kNoBatchSlot,  // all batch slots are in use
  kNoState,      // all state slots are in use
  kNoMemory,     // the pages do not suffice for the request
  kBudget,       // the pass's input or chunk tokens are used up; the next pass continues
};

struct PrefillGrant {
  PrefillVerdict verdict = PrefillVerdict::kAdmit;
  int64_t tokens = 0;      // tokens to prefill in this pass; 0 unless admitted
  bool completes = false;  // `tokens` are all pending tokens of the request
};

class PrefillBudget {
 public:
  PrefillBudget(const PrefillLimits& limits, const PrefillResources& resources);

  // Grants the next chunk of a request that already has its batch slot and state. The request must
  // progress: if the estimate says that memory is short, it gets the chunk anyway, and the caller
  // finds real pages by retraction. The grant is empty (kBudget) only when the chunk is used up, or
  // when its rest reaches no grid position and the request is not the pass's first.
  PrefillGrant resume(const PrefillDemand& demand);

  // The grant that the request would get if it were admitted now. Changes nothing.
  [[nodiscard]] PrefillGrant check(const PrefillDemand& demand) const;

  // Subtracts a grant that check() returned (checked to be an admission).
  void admit(const PrefillDemand& demand, const PrefillGrant& grant);

  // Subtracts evictable tokens that are locked from now on.
  void pin(int64_t tokens);

  // Subtracts the rows of a granted chunk that score tokens; at least `count` must be left
  // (checked).
  void take_scored_rows(int64_t count);

  [[nodiscard]] int64_t remaining_scored_rows() const { return scored_rows_; }

  // Called after an admission: returns kAdmit if the pass may continue.
  [[nodiscard]] PrefillVerdict stop() const;

  // Memory left, now and later: a request is admitted if pending + expected output + a page is
  // below it.
  [[nodiscard]] double remaining_total() const { return total_; }

  [[nodiscard]] double remaining_now() const { return now_; }

  [[nodiscard]] int64_t remaining_input() const { return input_; }

  [[nodiscard]] int64_t remaining_chunk() const { return chunk_; }

  // Requests granted tokens in this pass, resumed ones included.
  [[nodiscard]] int64_t num_admitted() const { return num_admitted_; }

 private:
  [[nodiscard]] int64_t pages_of(int64_t tokens) const;
  [[nodiscard]] int64_t compute_of(int64_t tokens) const;
  [[nodiscard]] int64_t cut(const PrefillDemand& demand, int64_t available) const;
  void take(const PrefillDemand& demand, const PrefillGrant& grant);

  PrefillLimits limits_;
  double total_ = 0;
  double now_ = 0;
  int64_t input_ = 0;
  int64_t chunk_ = 0;  // tokens left of the step; kUnlimited when prompts are never cut
  int64_t batch_slots_ = 0;
  int64_t state_slots_ = 0;
  int64_t scored_rows_ = 0;
  int64_t num_admitted_ = 0;
  bool cut_ = false;  // some request of this pass was cut: its prefill does not complete
};

}  // namespace heddle::scheduler
