// SPDX-License-Identifier: Apache-2.0
// Pace: how prompts and running streams share the steps.
//
// DecodeInterleave decides, without mixed batches, whether a step is a prefill or a decode step.
// StepPace measures how long steps take and, with a target for the inter-token latency, limits the
// prompt tokens of a step so that streams get their next token in time.
//
// Threading: thread-confined. Cost: O(1) a call, except StepPace::limit_prefills() with a target:
// StepTimeModel::fit().
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "scheduler/deadlines.h"
#include "scheduler/prefill_budget.h"
#include "scheduler/step_time_model.h"
#include "speculative/draft_cost.h"

namespace heddle::scheduler {

enum class StepKind { kIdle, kPrefill, kDecode };

// Prefill first lets one long prompt, or many short ones, stop every running stream; so after at
// most `prefills_per_decode` prefill steps in a row comes a decode step. 0: prefill first, always.
//
// A running stream thus gets a token at least every prefills_per_decode prefill steps and one
// decode step, however many prompts wait.
class DecodeInterleave {
 public:
  explicit DecodeInterleave(int32_t prefills_per_decode);  // at least 0 (checked)

  // The kind of the next step, given what could run. Changes nothing.
  [[nodiscard]] StepKind next(bool can_prefill, bool can_decode) const;

  // Records that a step of `kind` was planned.
  void ran(StepKind kind);

 private:
  int32_t prefills_per_decode_;
  int32_t consecutive_prefills_ = 0;  // since the last step in which running streams advanced
};

// Minimum prompt tokens per step, if there are any, even on slow devices: a latency target for
// streams must not stop prompts.
inline constexpr int64_t kLeastChunkTokens = 64;

struct StepPaceOptions {
  double target_itl_ms = 0;  // 0: no target
  bool mixed_batches = true;
  int32_t prefills_per_decode = 1;
  bool makes_drafts = false;  // steps make the drafts of those that come after them
};

// The tokens of a finished step.
struct StepYield {
  int64_t num_tokens = 0;  // drawn tokens
  bool warms_up = false;   // request::StepOutput::warms_up
};

// The steps in flight, from their planning to their end:
//
//   begin_step() -> limit_prefills() -> [add_decode() | add_prefill()]* -> end_step()
//       -> step_completed() or step_abandoned()
//
// A step that is begun and never ended does not count.
class StepPace {
 public:
  explicit StepPace(const StepPaceOptions& options) : options_(options) {}

  [[nodiscard]] bool has_target() const { return options_.target_itl_ms > 0; }

  void begin_step() { planned_ = {}; }

  // Sets how much time the prompts of this step may take: the target less what a step of `streams`,
  // every running stream, takes. Without streams there is no limit.
  void limit_prefills(const StepWork& streams);

  // How many prompt tokens after `context_tokens` fit the remaining time; at least
  // kLeastChunkTokens for the first prompt of the step. A later prompt may get more: tokens with
  // fewer tokens before them take less time.
  [[nodiscard]] int64_t max_prefill_tokens(const PrefillBudget& budget,
                                           int64_t context_tokens) const;

  // Adds a stream's next token and drafts to the step, and drafts that it makes; or tokens of a
  // prompt.
  void add_decode(int64_t context_tokens, int64_t num_drafts = 0, int64_t num_made = 0);
  void add_prefill(int64_t num_tokens, int64_t context_tokens);

  // The step is planned: it is in flight from now on.
  void end_step(int64_t num_sequences, double now_seconds);

  // Costs and gains of drafts, measured on steps that had no prompt.
  [[nodiscard]] const speculative::DraftCost& draft_cost() const { return draft_cost_; }

  // Records the end of the oldest step in flight; there is one.
  void step_completed(double now_seconds, const StepYield& yield = {});
  void step_abandoned();

  [[nodiscard]] int64_t num_steps_in_flight() const { return std::ssize(in_flight_); }

  [[nodiscard]] const ServiceRates& rates() const { return rates_; }

 private:
  struct Step {
    double planned_seconds = 0;
    StepWork work;
    int64_t num_sequences = 0;
    int64_t num_drafts = 0;
    int64_t num_made = 0;
    bool prefills = false;
  };

  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  StepPaceOptions options_;
  StepTimeModel step_times_;
  speculative::DraftCost draft_cost_;
  ServiceRates rates_;
  Step planned_;                       // the step being planned
  std::vector<Step> in_flight_;        // oldest first
  double last_step_seconds_ = 0;       // when the last step ended
  int64_t last_num_made_ = 0;          // drafts made after the last step
  double prefill_seconds_ = kNoLimit;  // what prompts may still take of the step being planned
};

}  // namespace heddle::scheduler
