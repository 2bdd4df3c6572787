// SPDX-License-Identifier: Apache-2.0
// Pace: how prompts and running streams share the steps.
//
// DecodeInterleave decides, without mixed batches, whether a step is a prefill or a decode step.
// StepPace measures how long steps take and, with a target for the inter-token latency, limits the
// prompt tokens of a step so that streams get their next token in time.
//
// Threading: thread-confined. Cost: O(1) a call; with a target, StepPace::limit_prefills() also
// costs one StepTimeModel::fit().
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

// If prefill always came first, one long prompt or many short ones would stop every running stream.
// So after at most `prefills_per_decode` prefill steps in a row comes a decode step; 0: prefill
// always comes first. A running stream thus gets a token at least once in prefills_per_decode + 1
// steps, however many prompts wait.
class DecodeInterleave {
 public:
  explicit DecodeInterleave(int32_t prefills_per_decode);  // prefills_per_decode is at least 0
                                                           // (checked)

  // The kind of the next step, given which kinds have work. Changes nothing.
  [[nodiscard]] StepKind next(bool can_prefill, bool can_decode) const;

  // Records that a step of `kind` was planned.
  void ran(StepKind kind);

 private:
  int32_t prefills_per_decode_;
  int32_t consecutive_prefills_ = 0;  // prefill steps since the last decode step
};

// Least prompt tokens of a step with prompts, however slow the device: a latency target for streams
// must not stop prompts.
inline constexpr int64_t kLeastChunkTokens = 64;

struct StepPaceOptions {
  double target_itl_ms = 0;  // inter-token latency that streams should have, in milliseconds; 0: no
                             // target
  bool mixed_batches = true;        // one step may contain both prompts and streams
  int32_t prefills_per_decode = 1;  // without mixed_batches: most prefill steps in a row while
                                    // streams wait
  bool makes_drafts = false;        // the runner's steps make the drafts of later steps
};

// The result of a finished step, for the statistics.
struct StepYield {
  int64_t num_tokens = 0;  // tokens that the step drew
  bool warms_up = false;   // the step's time is not typical; request::StepOutput::warms_up
};

// StepPace measures the steps in flight, from planning to completion:
//
//   begin_step() -> limit_prefills() -> [add_decode() | add_prefill()]* -> end_step()
//       -> step_completed() or step_abandoned()
//
// A step that is begun and never ended is not counted.
class StepPace {
 public:
  explicit StepPace(const StepPaceOptions& options) : options_(options) {}

  [[nodiscard]] bool has_target() const { return options_.target_itl_ms > 0; }

  void begin_step() { planned_ = {}; }

  // Sets how much time the prompts of this step may take: the target minus the expected time of
  // `streams`, the work of all running streams. Without streams there is no limit.
  void limit_prefills(const StepWork& streams);

  // How many tokens of a prompt fit in the remaining time if `context_tokens` come before them; at
  // least kLeastChunkTokens for the first prompt of the step. A later prompt may get more tokens
  // than an earlier one: tokens with a shorter context take less time.
  [[nodiscard]] int64_t max_prefill_tokens(const PrefillBudget& budget,
                                           int64_t context_tokens) const;

  // add_decode() adds a stream's next token and drafts to the step, and the drafts that the step
  // makes; add_prefill() adds tokens of a prompt.
  void add_decode(int64_t context_tokens, int64_t num_drafts = 0, int64_t num_made = 0);
  void add_prefill(int64_t num_tokens, int64_t context_tokens);

  // Called when the step is planned: it counts as in flight from now on.
  void end_step(int64_t num_sequences, double now_seconds);

  // Costs and gains of drafts, measured on steps without prompts.
  [[nodiscard]] const speculative::DraftCost& draft_cost() const { return draft_cost_; }

  // Record that the oldest step in flight was completed or failed; one must be in flight.
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
  Step planned_;                       // the step that is being planned
  std::vector<Step> in_flight_;        // steps in flight, the oldest first
  double last_step_seconds_ = 0;       // when the last step ended, in seconds
  int64_t last_num_made_ = 0;          // drafts that the runner made after the last step
  double prefill_seconds_ = kNoLimit;  // seconds that prompts may still take in the step being
                                       // planned
};

}  // namespace heddle::scheduler
