// SPDX-License-Identifier: Apache-2.0
// PrefillBudget: how many tokens one scheduling pass may prefill, and of whom.
//
// Four amounts, in tokens, fall with every admission; a request that prefills n tokens of which m
// need new pages takes
//   total   m rounded up to pages + a page + what is kept for its output: memory, now and later
//   now     m rounded up to pages + a page: memory at once
//   input   n: new tokens of one pass
//   chunk   n: new tokens of one step
// The extra page covers the one that is partly used. Output is kept for when a prefill completes:
// min(tokens it may still draw, kNewTokensClip). The reference rounds n up to pages as well, which
// wastes up to a page of every step's compute per request.
//
// A pass: construct it; resume() those in the middle of their prefill; then for each waiting
// request in order check(), admit(), and pin() what it shares with the cache; leave the loop at the
// first verdict other than kAdmit, and when stop() is set. No request overtakes one that does not
// fit, but short prompts whose tokens were kept for them: after kBudget they are asked for, too.
//
// Chunks that are not a prompt's last end on multiples of the grid, counted from the sequence's
// first token. A chunk that would be empty then is not cut on the grid if it is the pass's first:
// progress goes before alignment. At most one waiting request of a pass is cut, those not counted
// that find too few rows to score their tokens.
//
// Threading: thread-confined; a value, made anew for each pass. Cost: O(1) a call, no allocation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <heddle/options.h>

namespace heddle::scheduler {

// No more output of one request is expected than this: limits of 2^30 are common and mean "until it
// ends".
constexpr int64_t kNewTokensClip = 4096;

// min(max_new_tokens - output_tokens, clip), at least 0.
[[nodiscard]] constexpr int64_t new_tokens_left(int64_t max_new_tokens, int64_t output_tokens) {
  return std::clamp<int64_t>(max_new_tokens - output_tokens, 0, kNewTokensClip);
}

// NewTokenRatio: the part of the output that running requests may still draw which is set aside for
// them when others are admitted. Most requests end early, so it begins below 1 and falls with every
// decode step that finds its pages, and rises when a retraction shows that the guess was too low.
class NewTokenRatio {
 public:
  // `conservativeness` > 0 (checked): 1 begins at 0.7.
  explicit NewTokenRatio(double conservativeness);

  [[nodiscard]] double value() const { return value_; }

  [[nodiscard]] double initial() const { return initial_; }

  [[nodiscard]] double minimum() const { return minimum_; }

  // Tokens to set aside for a running request.
  [[nodiscard]] double reserve(int64_t max_new_tokens, int64_t output_tokens) const {
    return static_cast<double>(new_tokens_left(max_new_tokens, output_tokens)) * value_;
  }

  // Lowers the ratio. Called after a decode step without retraction.
  void decay();

  // After a retraction, from the `num_running` requests that remain, at least 1 (checked): their
  // output so far and their limits, summed. The ratio never falls here: an overflow is no reason
  // for optimism.
  void after_retraction(int64_t sum_output_tokens, int64_t sum_max_new_tokens, int64_t num_running);

  // after_retraction() compares with it; the reference takes it as it is.
  [[nodiscard]] static double estimate(int64_t sum_output_tokens, int64_t sum_max_new_tokens,
                                       int64_t num_running);

  // The engine is idle.
  void reset() { value_ = initial_; }

 private:
  double initial_;
  double minimum_;
  double step_;
  double value_;
};

struct PrefillLimits {
  int32_t page_size = 1;
  int64_t chunk_grid = 1;              // chunks end on multiples of it and of the page size
  int64_t max_prefill_tokens = 16384;  // input
  int64_t chunk_tokens = 8192;         // chunk; 0: prompts are never cut
  bool pages_at_admission = false;     // the first chunk takes pages for the whole sequence
  bool round_compute = false;          // input and chunk count whole pages

  // Pages of one token, no grid, pages as chunks need them, compute in whole pages.
  [[nodiscard]] static PrefillLimits reference();
};

// The resources at the start of the pass.
struct PrefillResources {
  int64_t free_tokens = 0;     // free pages and evictable ones, in tokens
  double reserved_tokens = 0;  // future output of the running: NewTokenRatio::reserve() of each
  int64_t mixed_tokens = 0;    // decode tokens in the same step; 0 without mixed batches
  int64_t free_batch_slots = std::numeric_limits<int64_t>::max();
  int64_t free_state_slots = std::numeric_limits<int64_t>::max();  // evictable states included
  int64_t scored_rows = 0;  // rows of the step that can score tokens of prompts
};

// A request's demand.
struct PrefillDemand {
  int64_t context_tokens = 0;   // computed or cached: its prefill begins here
  int64_t pending_tokens = 0;   // to be computed, at least 1
  int64_t new_tokens_left = 0;  // max_new_tokens - output so far, at least 0
  int64_t held_tokens = 0;      // pending tokens that have pages already
  int64_t most_tokens = std::numeric_limits<int64_t>::max();  // limit of this pass
  int64_t most_scored_tokens =
      std::numeric_limits<int64_t>::max();  // likewise, for want of rows that score tokens: one cut
                                            // there leaves the chunk to others
};

enum class PrefillVerdict {
  kAdmit,
  kNoBatchSlot,  // max_running are running: the batch is full
  kNoState,      // every state slot is taken
  kNoMemory,     // not enough tokens: the batch is full
  kBudget,       // the pass's input or chunk is used up: the next pass goes on
};

struct PrefillGrant {
  PrefillVerdict verdict = PrefillVerdict::kAdmit;
  int64_t tokens = 0;      // to prefill in this pass; 0 unless admitted
  bool completes = false;  // the tokens are all pending ones
};

class PrefillBudget {
 public:
  PrefillBudget(const PrefillLimits& limits, const PrefillResources& resources);

  // Grants the next chunk of a request that has its batch slot and state already. It must progress:
  // when memory is short on paper it gets the chunk anyway, and the caller makes room for real
  // pages by retraction. No tokens (kBudget) only when the chunk is used up, or what is left of it
  // reaches no grid position and the request is not the pass's first.
  PrefillGrant resume(const PrefillDemand& demand);

  // The grant if the request were admitted now. Changes nothing.
  [[nodiscard]] PrefillGrant check(const PrefillDemand& demand) const;

  // Takes a grant of check() (checked to be an admission).
  void admit(const PrefillDemand& demand, const PrefillGrant& grant);

  // Evictable tokens that a lock keeps from now on.
  void pin(int64_t tokens);

  // Rows of a granted chunk that score tokens; there are as many (checked).
  void take_scored_rows(int64_t count);

  [[nodiscard]] int64_t remaining_scored_rows() const { return scored_rows_; }

  // Called after an admission: kAdmit if the pass may continue.
  [[nodiscard]] PrefillVerdict stop() const;

  // Tokens a request's admission must stay below: pending + output to come + a page.
  [[nodiscard]] double remaining_total() const { return total_; }

  [[nodiscard]] double remaining_now() const { return now_; }

  [[nodiscard]] int64_t remaining_input() const { return input_; }

  [[nodiscard]] int64_t remaining_chunk() const { return chunk_; }

  [[nodiscard]] int64_t num_admitted() const { return num_admitted_; }  // resumed ones included

 private:
  [[nodiscard]] int64_t pages_of(int64_t tokens) const;
  [[nodiscard]] int64_t compute_of(int64_t tokens) const;
  [[nodiscard]] int64_t cut(const PrefillDemand& demand, int64_t available) const;
  void take(const PrefillDemand& demand, const PrefillGrant& grant);

  PrefillLimits limits_;
  double total_ = 0;
  double now_ = 0;
  int64_t input_ = 0;
  int64_t chunk_ = 0;  // the largest value when prompts are never cut
  int64_t batch_slots_ = 0;
  int64_t state_slots_ = 0;
  int64_t scored_rows_ = 0;
  int64_t num_admitted_ = 0;
  bool cut_ = false;  // a prefill of this pass does not complete
};

}  // namespace heddle::scheduler
