// SPDX-License-Identifier: Apache-2.0
// How fast steps are, and how much of a step prompts may take from streams.
#include <algorithm>
#include <limits>

#include "scheduler/batch_scheduler.h"

namespace heddle::scheduler {

namespace {

constexpr double kSpeedMemory = 0.9;  // how much of a measured rate stays when a new one comes
constexpr double kNoTarget = std::numeric_limits<double>::infinity();

void blend(double& rate, double sample) {
  rate = rate == 0 ? sample : kSpeedMemory * rate + (1 - kSpeedMemory) * sample;
}

}  // namespace

// What a step of all those who draw computes. Nothing without a target, which alone asks.
StepWork BatchScheduler::streaming_work() const {
  StepWork work;
  if (options_.scheduling.target_itl_ms <= 0) return work;
  for (const int32_t index : running_) {
    const Row& row = rows_[static_cast<size_t>(index)];
    if (can_decode(row)) work.add(1, row.num_planned);
  }
  return work;
}

// Finds what `streams` leave for prompts of the time until their next token.
void BatchScheduler::begin_pace(const StepWork& streams) {
  prefill_seconds_ = kNoTarget;
  if (streams.new_tokens == 0) return;
  step_times_.fit();
  prefill_seconds_ = options_.scheduling.target_itl_ms * 1e-3 - step_times_.seconds(streams);
  if (options_.scheduling.mixed_batches) return;
  // Some prefill steps, then the streams'.
  const int32_t steps = std::max(options_.scheduling.prefills_per_decode, 1);
  prefill_seconds_ = prefill_seconds_ / steps - step_times_.seconds({});
}

// How many tokens a sequence that goes on behind `context_tokens` may compute in what is left of
// the time. Those after it may come out with more: tokens with less before them take less time.
int64_t BatchScheduler::paced_tokens(const PrefillBudget& budget, int64_t context_tokens) const {
  if (prefill_seconds_ == kNoTarget) return std::numeric_limits<int64_t>::max();
  int64_t tokens = 0;
  if (step_times_.knows_prefill()) {
    tokens = step_times_.tokens_within(prefill_seconds_, context_tokens, budget.remaining_chunk());
  }
  return budget.num_admitted() == 0 ? std::max(tokens, kLeastChunkTokens) : tokens;
}

// The oldest step in flight has ended: it ran since it was planned, or since the one before ended.
void BatchScheduler::note_speed() {
  const PlannedStep step = plans_in_flight_.front();
  plans_in_flight_.erase(plans_in_flight_.begin());
  const double now = clock_->now_seconds();
  const double seconds = now - std::max(step.planned_seconds, last_step_seconds_);
  last_step_seconds_ = now;
  if (seconds <= 0 || step.work.new_tokens == 0) return;
  step_times_.add(step.work, step.prefills, seconds);
  const auto tokens = static_cast<double>(step.work.new_tokens);
  if (step.work.new_tokens > 2 * step.num_sequences) {  // mostly prompts
    blend(rates_.prefill_tokens_per_second, tokens / seconds);
  } else {
    blend(rates_.decode_tokens_per_second, 1 / seconds);
  }
}

}  // namespace heddle::scheduler
