// SPDX-License-Identifier: Apache-2.0
// How a step is put together.
#include <algorithm>

#include "core/check.h"
#include "scheduler/batch_scheduler.h"

namespace heddle::scheduler {

using request::BatchPlan;
using request::PlannedSequence;
using request::Sequence;

// Prefilled and drawing: exactly one token is not planned yet, drawn or about to be, and the one
// after it is wanted.
bool BatchScheduler::can_decode(const Row& row) const {
  const Sequence& sequence = *row.sequence;
  const int64_t drawn = sequence.num_output_tokens() + row.draws_in_flight;
  return row.leaving == Leaving::kNo && !row.hold.starts && drawn > 0 &&
         drawn < sequence.request.stop.max_new_tokens &&
         sequence.num_tokens() + row.draws_in_flight - row.num_planned == 1;
}

bool BatchScheduler::can_prefill(const Row& row) const {
  return row.leaving == Leaving::kNo && row.draws_in_flight == 0 &&
         row.sequence->num_tokens() > row.num_planned && !can_decode(row);
}

void BatchScheduler::plan(BatchPlan& plan) {
  HEDDLE_CHECK_LE(std::ssize(plans_in_flight_), 1);
  plan.clear();
  planned_ = {};
  ++pass_;
  const auto any = [this](bool (BatchScheduler::*test)(const Row&) const) {
    return std::any_of(running_.begin(), running_.end(),
                       [&](int32_t row) { return (this->*test)(rows_[static_cast<size_t>(row)]); });
  };
  const bool mixed = options_.scheduling.mixed_batches;
  const bool decodes = any(&BatchScheduler::can_decode);
  StepKind kind = StepKind::kPrefill;
  if (!mixed) {
    const bool prefills = any(&BatchScheduler::can_prefill) || admits();
    kind = interleave_.next(prefills, decodes);
  }
  const StepWork streams = streaming_work();
  int64_t num_decoding = 0;
  if (mixed || kind == StepKind::kDecode) num_decoding = plan_decoding(plan);
  if (plan.empty()) kind = StepKind::kPrefill;  // whoever was to decode may have been retracted
  if (mixed || kind == StepKind::kPrefill) {
    PrefillBudget budget = make_budget(num_decoding);
    begin_pace(streams);
    if (admits() || (!waiting_.empty() && any(&BatchScheduler::can_prefill))) {
      order_waiting();
      mark_followers();
    }
    plan_prefills(budget, plan);
    for (Queued& queued : waiting_) queued.short_of_room = true;
    admit_waiting(budget, plan);
    if (!mixed && plan.empty() && decodes) {  // nobody could be admitted
      kind = StepKind::kDecode;
      plan_decoding(plan);
    }
  }
  if (plan.empty() && running_.empty()) admit_first(plan);
  if (plan.empty()) return;
  cache_.plan_head(plan);
  if (!mixed) interleave_.ran(kind);
  planned_.planned_seconds = clock_->now_seconds();
  planned_.num_sequences = std::ssize(plan.sequences);
  plans_in_flight_.push_back(planned_);
}

int64_t BatchScheduler::plan_decoding(BatchPlan& plan) {
  // Room for all of them first: a sequence that is retracted must not be in the step already.
  candidate_rows_.clear();
  for (const int32_t row : running_) {
    if (can_decode(rows_[static_cast<size_t>(row)])) candidate_rows_.push_back(row);
  }
  const int64_t retractions = num_retractions_;
  chosen_.clear();
  for (const int32_t row : candidate_rows_) {
    const Row& decoding = rows_[static_cast<size_t>(row)];
    if (decoding.sequence == nullptr || decoding.leaving != Leaving::kNo) continue;
    if (grow_or_retract(row)) chosen_.push_back(row);
  }
  int64_t count = 0;
  for (const int32_t row : chosen_) {
    const Row& decoding = rows_[static_cast<size_t>(row)];
    if (decoding.sequence == nullptr || decoding.leaving != Leaving::kNo) continue;
    add_decode(row, plan);
    ++count;
  }
  if (count > 0 && num_retractions_ == retractions) ratio_.decay();
  return count;
}

bool BatchScheduler::grow_or_retract(int32_t index) {
  Row& row = rows_[static_cast<size_t>(index)];
  while (!cache_.grow(*row.sequence, row.num_planned + 1)) {
    if (shrink_windows()) continue;
    // Without room the sequence sits this step out; room comes when a step in flight is complete.
    if (!retract_one() || row.sequence == nullptr || row.leaving != Leaving::kNo) return false;
  }
  return true;
}

// Pages that sliding windows have left behind.
bool BatchScheduler::shrink_windows() {
  bool room = false;
  for (const int32_t index : running_) {
    Row& row = rows_[static_cast<size_t>(index)];
    room |= cache_.shrink(*row.sequence, row.hold);
  }
  return room;
}

// Sends one sequence back to the queue. True if what it held is there now.
bool BatchScheduler::retract_one() {
  retraction_candidates_.clear();
  retraction_rows_.clear();
  int64_t sum_output = 0;
  int64_t sum_max = 0;
  for (const int32_t index : running_) {
    const Row& row = rows_[static_cast<size_t>(index)];
    if (row.leaving != Leaving::kNo) return false;  // its room comes without anybody else's leaving
    const Sequence& sequence = *row.sequence;
    sum_output += sequence.num_output_tokens();
    sum_max += sequence.request.stop.max_new_tokens;
    retraction_rows_.push_back(index);
    retraction_candidates_.push_back({.urgency = row.urgency,
                                      .num_retractions = sequence.num_retractions,
                                      .output_tokens = sequence.num_output_tokens(),
                                      .prompt_tokens = sequence.num_prompt_tokens,
                                      .arrival = sequence.id});
  }
  const std::optional<int32_t> victim = choose_retraction(retraction_candidates_);
  if (!victim) {
    // The last one running finds that what it shares with the cache stands in its own way.
    HEDDLE_CHECK_EQ(std::ssize(running_), 1);
    Row& row = rows_[static_cast<size_t>(running_.front())];
    HEDDLE_CHECK(!row.hold.keeps_to_itself);  // alone, check_fits() promised it room
    row.returns_alone = true;
    leave(running_.front(), Leaving::kRetracted);
    return false;
  }
  const int32_t index = retraction_rows_[static_cast<size_t>(*victim)];
  const Sequence& sequence = *rows_[static_cast<size_t>(index)].sequence;
  ratio_.after_retraction(sum_output - sequence.num_output_tokens(),
                          sum_max - sequence.request.stop.max_new_tokens, std::ssize(running_) - 1);
  admission_paused_ = true;
  paused_urgency_ = rows_[static_cast<size_t>(index)].urgency;
  const bool at_once = rows_[static_cast<size_t>(index)].steps_in_flight == 0;
  leave(index, Leaving::kRetracted);
  return at_once;
}

PlannedSequence BatchScheduler::planned(int32_t index, bool sample) const {
  const Row& row = rows_[static_cast<size_t>(index)];
  const Sequence& sequence = *row.sequence;
  PlannedSequence planned;
  planned.sequence_id = sequence.id;
  planned.batch_slot = index;
  planned.context_tokens = row.num_planned;
  planned.pages = sequence.pages;
  planned.state_slot = sequence.state_slot;
  planned.ending_tokens = sequence.ending_tokens;
  planned.sample = sample;
  planned.sampling = &sequence.request.sampling;
  planned.seed = sequence.seed;
  planned.choice_index = sequence.request.choice_index;
  planned.output_tokens = sequence.output_tokens();
  planned.return_logprobs = sequence.request.return_logprobs;
  planned.top_logprobs = sequence.request.top_logprobs;
  if (sequence.num_output_tokens() + row.draws_in_flight < sequence.request.stop.min_new_tokens) {
    planned.forbidden_tokens = sequence.ending_tokens;
  }
  return planned;
}

void BatchScheduler::add_decode(int32_t index, BatchPlan& plan) {
  Row& row = rows_[static_cast<size_t>(index)];
  PlannedSequence next = planned(index, true);
  next.feeds_drawn_token = row.draws_in_flight > 0;
  if (!next.feeds_drawn_token) {
    next.new_tokens = std::span<const TokenId>(row.sequence->tokens).last(1);
  }
  planned_.work.add(1, row.num_planned);
  cache_.plan_decode(*row.sequence, row.hold, row.num_planned + 1, next);
  ++row.num_planned;
  ++row.steps_in_flight;
  ++row.draws_in_flight;
  plan.sequences.push_back(next);
}

void BatchScheduler::plan_prefills(PrefillBudget& budget, BatchPlan& plan) {
  for (const int32_t index : running_) {
    const Row& row = rows_[static_cast<size_t>(index)];
    if (!can_prefill(row)) continue;
    const Sequence& sequence = *row.sequence;
    const int64_t pending = sequence.num_tokens() - row.num_planned;
    const PrefillGrant grant =
        budget.resume({.context_tokens = row.num_planned,
                       .pending_tokens = pending,
                       .new_tokens_left = new_tokens_left(sequence.request.stop.max_new_tokens,
                                                          sequence.num_output_tokens()),
                       .held_tokens = pending,
                       .most_tokens = paced_tokens(budget, row.num_planned)});
    if (grant.tokens > 0) add_prefill(index, grant.tokens, plan);
  }
}

void BatchScheduler::add_prefill(int32_t index, int64_t num_new_tokens, BatchPlan& plan) {
  Row& row = rows_[static_cast<size_t>(index)];
  const Sequence& sequence = *row.sequence;
  const int64_t end = row.num_planned + num_new_tokens;
  const bool last = end == sequence.num_tokens();
  PlannedSequence next = planned(index, last && sequence.wants_tokens());
  next.new_tokens =
      std::span<const TokenId>(sequence.tokens)
          .subspan(static_cast<size_t>(row.num_planned), static_cast<size_t>(num_new_tokens));
  cache_.plan_prefill(sequence, row.hold, end, next, plan);
  planned_.work.add(num_new_tokens, row.num_planned);
  planned_.prefills = true;
  prefill_seconds_ -= step_times_.added_seconds(num_new_tokens, row.num_planned);
  row.num_planned = end;
  ++row.steps_in_flight;
  if (next.sample) ++row.draws_in_flight;
  plan.sequences.push_back(next);
}

}  // namespace heddle::scheduler
