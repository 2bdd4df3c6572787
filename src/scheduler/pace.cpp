// SPDX-License-Identifier: Apache-2.0
#include "scheduler/pace.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::scheduler {

namespace {

constexpr double kKeptShare = 0.9;  // weight of the old rate when a new measurement is added

void blend(double& rate, double sample) {
  rate = rate == 0 ? sample : kKeptShare * rate + (1 - kKeptShare) * sample;
}

}  // namespace

DecodeInterleave::DecodeInterleave(int32_t prefills_per_decode)
    : prefills_per_decode_(prefills_per_decode) {
  HEDDLE_CHECK_GE(prefills_per_decode, 0);
}

StepKind DecodeInterleave::next(bool can_prefill, bool can_decode) const {
  if (!can_prefill) return can_decode ? StepKind::kDecode : StepKind::kIdle;
  if (!can_decode || prefills_per_decode_ == 0) return StepKind::kPrefill;
  return consecutive_prefills_ < prefills_per_decode_ ? StepKind::kPrefill : StepKind::kDecode;
}

void DecodeInterleave::ran(StepKind kind) {
  if (kind == StepKind::kDecode) consecutive_prefills_ = 0;
  if (kind == StepKind::kPrefill) {
    consecutive_prefills_ = std::min(consecutive_prefills_ + 1, prefills_per_decode_);
  }
}

void StepPace::limit_prefills(const StepWork& streams) {
  prefill_seconds_ = kNoLimit;
  if (!has_target() || streams.new_tokens == 0) return;
  step_times_.fit();
  prefill_seconds_ = options_.target_itl_ms * 1e-3 - step_times_.seconds(streams);
  if (options_.mixed_batches) return;
  // Up to `steps` prefill steps come before the streams' step and share the time.
  const int32_t steps = std::max(options_.prefills_per_decode, 1);
  prefill_seconds_ = prefill_seconds_ / steps - step_times_.seconds({});
}

int64_t StepPace::max_prefill_tokens(const PrefillBudget& budget, int64_t context_tokens) const {
  if (prefill_seconds_ == kNoLimit) return std::numeric_limits<int64_t>::max();
  int64_t tokens = 0;
  if (step_times_.knows_prefill()) {
    tokens = step_times_.tokens_within(prefill_seconds_, context_tokens, budget.remaining_chunk());
  }
  return budget.num_admitted() == 0 ? std::max(tokens, kLeastChunkTokens) : tokens;
}

void StepPace::add_decode(int64_t context_tokens, int64_t num_drafts, int64_t num_made) {
  planned_.work.add(1 + num_drafts, context_tokens);
  planned_.num_drafts += num_drafts;
  planned_.num_made += num_made;
}

void StepPace::add_prefill(int64_t num_tokens, int64_t context_tokens) {
  planned_.work.add(num_tokens, context_tokens);
  planned_.prefills = true;
  prefill_seconds_ -= step_times_.added_seconds(num_tokens, context_tokens);
}

void StepPace::end_step(int64_t num_sequences, double now_seconds) {
  planned_.num_sequences = num_sequences;
  planned_.planned_seconds = now_seconds;
  in_flight_.push_back(planned_);
}

void StepPace::step_completed(double now_seconds, const StepYield& yield) {
  HEDDLE_CHECK(!in_flight_.empty());
  const Step step = in_flight_.front();
  in_flight_.erase(in_flight_.begin());
  // The step ran from its planning or from the end of the previous step, whichever was later.
  const double seconds = now_seconds - std::max(step.planned_seconds, last_step_seconds_);
  // Streams wait from step to step, so the measured time includes planning unless it overlapped a
  // step.
  if (!step.prefills) {
    // The runner may still have been making drafts of the previous step, which delays this one.
    const bool is_behind_drafts = step.num_drafts == 0 && last_num_made_ > 0;
    draft_cost_.add({.num_streams = step.num_sequences,
                     .num_rows = step.work.new_tokens,
                     .num_tokens = yield.num_tokens,
                     .seconds = now_seconds - last_step_seconds_,
                     .makes_others = options_.makes_drafts &&
                                     (step.num_made != step.num_drafts || is_behind_drafts),
                     .warms_up = yield.warms_up});
  }
  last_step_seconds_ = now_seconds;
  last_num_made_ = step.num_made;
  if (seconds <= 0 || step.work.new_tokens == 0 || yield.warms_up) return;
  step_times_.add(step.work, step.prefills, seconds);
  const auto tokens = static_cast<double>(step.work.new_tokens);
  // Most tokens of the step are prompt tokens.
  if (step.work.new_tokens - step.num_drafts > 2 * step.num_sequences) {
    blend(rates_.prefill_tokens_per_second, tokens / seconds);
  } else {
    blend(rates_.decode_tokens_per_second, 1 / seconds);
  }
}

void StepPace::step_abandoned() {
  HEDDLE_CHECK(!in_flight_.empty());
  in_flight_.erase(in_flight_.begin());
}

}  // namespace heddle::scheduler
