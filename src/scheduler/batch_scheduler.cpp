// SPDX-License-Identifier: Apache-2.0
#include "scheduler/batch_scheduler.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"

namespace heddle::scheduler {

using request::BatchPlan;
using request::PlannedSequence;
using request::SampledToken;
using request::Sequence;
using request::SequenceStatus;
using request::StepOutput;

namespace {

BatchSchedulerOptions consistent(BatchSchedulerOptions options) {
  HEDDLE_CHECK_GE(options.cache.pools.num_pages, 1);
  HEDDLE_CHECK_GE(options.limits.max_tokens, 1);
  HEDDLE_CHECK_GE(options.chunked_prefill_tokens, 1);
  HEDDLE_CHECK_GE(options.max_running, 1);
  int64_t batch_slots = std::min<int64_t>(options.max_running, options.limits.max_tokens);
  if (options.cache.pools.has_states()) {
    HEDDLE_CHECK_GE(options.cache.pools.num_state_slots, 1);
    batch_slots = std::min(batch_slots, options.cache.pools.num_state_slots);
  }
  if (!options.cache.pools.windows.empty()) {
    batch_slots = std::min<int64_t>(batch_slots, options.cache.pools.max_sequences);
  }
  options.max_running = static_cast<int32_t>(batch_slots);
  return options;
}

AdmissionOptions admission_options(const BatchSchedulerOptions& options,
                                   const QueuePolicyChoice& choice) {
  const cache::PoolSizes& pools = options.cache.pools;
  const bool on_grid = !pools.has_states() || cache::chunks_on_grid(options.cache.policy);
  return {.limits = {.page_size = pools.page_size,
                     .chunk_grid = on_grid ? options.cache.grid : pools.page_size,
                     .max_prefill_tokens = options.scheduling.max_prefill_tokens,
                     .chunk_tokens = options.chunked_prefill_tokens,
                     .pages_at_admission = true},
          .max_step_tokens = options.limits.max_tokens,
          .conservativeness = options.scheduling.conservativeness,
          .max_scored_rows = options.limits.max_scored_rows,
          .needs_state = pools.has_states(),
          .by_priority = choice.by_priority,
          .preemption = options.scheduling.preemption,
          .short_prompts_pass = !choice.by_priority && choice.policy != QueuePolicy::kFair};
}

}  // namespace

Result<std::unique_ptr<BatchScheduler>> BatchScheduler::create(
    const BatchSchedulerOptions& options, const Clock& clock,
    std::unique_ptr<speculative::Drafter> drafter) {
  HEDDLE_ASSIGN_OR_RETURN(const QueuePolicyChoice choice,
                          choose_queue_policy(options.scheduling, options.cache.enabled));
  if (choice.replaced_without_cache) {
    log_warning(
        fmt::format("schedule policy \"{}\" needs the prefix cache, which is off: using fcfs",
                    to_string(options.scheduling.policy)));
  }
  return std::unique_ptr<BatchScheduler>(
      new BatchScheduler(consistent(options), choice, clock, std::move(drafter)));
}

BatchScheduler::BatchScheduler(const BatchSchedulerOptions& options,
                               const QueuePolicyChoice& choice, const Clock& clock,
                               std::unique_ptr<speculative::Drafter> drafter)
    : options_(options),
      clock_(&clock),
      cache_(options.cache, &clock),
      fair_(FairShareOptions::from(options.scheduling)),
      waiting_({.choice = choice,
                .scheduling = options.scheduling,
                .max_queued = options.max_queued,
                .random_seed = options.random_seed},
               cache_, fair_),
      running_(options.max_running, options.limits, cache_),
      sharing_(options.shares_in_flight, cache_),
      pace_({.target_itl_ms = options.scheduling.target_itl_ms,
             .mixed_batches = options.scheduling.mixed_batches,
             .prefills_per_decode = options.scheduling.prefills_per_decode,
             .makes_drafts = options.limits.max_made_drafts > 0}),
      interleave_(options.scheduling.prefills_per_decode),
      admission_(admission_options(options, choice), {.cache = cache_,
                                                      .fair = fair_,
                                                      .waiting = waiting_,
                                                      .running = running_,
                                                      .sharing = sharing_,
                                                      .pace = pace_}),
      preemption_(PreemptionRules::from(options.scheduling), options.cache.pools.page_size,
                  options.cache.pools.has_states()),
      time_limits_(options.scheduling),
      drafts_(std::move(drafter),
              {.max_drafts = options.max_drafts,
               .max_rows = options.limits.max_draft_rows,
               .adapts = options.adapts_drafts,
               .max_made = options.limits.max_made_drafts,
               .topk = options.limits.draft_topk},
              pace_.draft_cost(), draft_odds_) {}

// ---- A sequence arrives ----

Status BatchScheduler::check_fits(const Sequence& sequence) const {
  if (sequence.wants_scores() && options_.limits.max_scored_rows == 0) {
    return unimplemented("this engine computes no logprobs of prompts");
  }
  const int64_t needed = sequence.max_stored_tokens();
  const int64_t available = options_.cache.pools.num_pages * options_.cache.pools.page_size;
  if (needed <= available) return {};
  return invalid_argument(fmt::format(
      "the request needs room for {} tokens ({} in the prompt, max_new_tokens = {}), but the KV "
      "pool holds {}; shorten it, or start the engine with more memory or a larger "
      "max_total_tokens",
      needed, sequence.num_prompt_tokens, sequence.request.stop.max_new_tokens, available));
}

Status BatchScheduler::check_call(std::span<const Sequence* const> sequences) const {
  return waiting_.check_call(sequences, options_.max_running);
}

Status BatchScheduler::submit_all(std::span<Sequence* const> sequences) {
  for (Sequence* sequence : sequences) {
    HEDDLE_DCHECK(check_fits(*sequence).ok());
    sequence->choose_rope(options_.limits.short_rope_tokens);
  }
  HEDDLE_RETURN_IF_ERROR(waiting_.submit_all(sequences, running_));
  for (const Sequence* sequence : sequences) time_limits_.note(sequence->request);
  return {};
}

// ---- A step is planned ----

void BatchScheduler::plan(BatchPlan& plan) {
  HEDDLE_CHECK_LE(pace_.num_steps_in_flight(), 1);
  plan.clear();
  plan.reserve(options_.max_running);
  pace_.begin_step();
  waiting_.begin_pass();

  const bool mixed = options_.scheduling.mixed_batches;
  const bool any_streams = running_.any_can_decode();
  StepKind kind = StepKind::kPrefill;
  if (!mixed) {
    kind = interleave_.next(running_.any_can_prefill() || admission_.open(), any_streams);
  }
  StepWork streams = pace_.has_target() ? running_.decode_work() : StepWork{};

  int64_t num_decode_rows = 0;
  if (mixed || kind == StepKind::kDecode) num_decode_rows = plan_streams(plan, streams);
  if (plan.empty()) kind = StepKind::kPrefill;  // all streams may have been retracted
  if (mixed || kind == StepKind::kPrefill) {
    plan_prompts(num_decode_rows, streams, plan);
    if (!mixed && plan.empty() && any_streams) {  // no prompt could be admitted, so streams decode
                                                  // after all
      kind = StepKind::kDecode;
      plan_streams(plan, streams);
    }
  }
  if (plan.empty() && running_.empty()) admission_.admit_first(plan, clock_->now_seconds());
  if (plan.empty()) return;

  cache_.plan_head(plan);
  if (!mixed) interleave_.ran(kind);
  pace_.end_step(std::ssize(plan.sequences), clock_->now_seconds());
}

void BatchScheduler::find_streams() {
  decoding_.clear();
  for (RunningSequence* running : running_.sequences()) {
    if (running->can_decode()) decoding_.push_back(running);
  }
}

// Returns how many rows decode in the step. Adds the rows of drafts to `work`, which has the
// streams' next tokens already.
int64_t BatchScheduler::plan_streams(BatchPlan& plan, StepWork& work) {
  // All streams get room before any is planned: a sequence that is retracted must not be in the
  // plan.
  find_streams();
  const int64_t retractions = num_retractions_;
  size_t num_ready = 0;
  for (RunningSequence* running : decoding_) {
    if (!running->stays()) continue;
    if (running->sequence->outgrows(running->num_planned + 1, options_.limits.short_rope_tokens)) {
      leave(*running, Leaving::kOutgrown);
    } else if (make_room_for_next_token(*running)) {
      decoding_[num_ready++] = running;
    }
  }
  decoding_.resize(num_ready);
  std::erase_if(decoding_, [](const RunningSequence* running) { return !running->stays(); });
  if (!decoding_.empty() && num_retractions_ == retractions) admission_.streams_advanced();
  int64_t num_rows = std::ssize(decoding_);
  drafts_.propose(decoding_, (options_.limits.max_tokens - num_rows) / 2);
  for (size_t i = 0; i < decoding_.size(); ++i) {
    RunningSequence& running = *decoding_[i];
    std::span<const TokenId> drafts = drafts_.of(i);
    if (!has_room_for(running, std::ssize(drafts))) drafts = {};
    const int64_t num_wanted = wanted_with_room(running, std::ssize(drafts), drafts_.wanted(i));
    const int64_t context_tokens = running.num_planned;
    const int64_t num_drafts = running_.plan_decode(
        running, {drafts, drafts_.parents_of(i), drafts_.forced(i)}, num_wanted, plan);
    num_rows += num_drafts;
    if (num_drafts > 0) work.add(num_drafts, context_tokens + 1);
    pace_.add_decode(context_tokens, num_drafts, num_wanted);
  }
  return num_rows;
}

// Reserves pages for `num_drafts` drafts if possible. Returns false if the drafts would outgrow the
// first table of rotary frequencies: the token after them must not be drawn with that table.
bool BatchScheduler::has_room_for(RunningSequence& running, int64_t num_drafts) {
  if (num_drafts == 0) return true;  // the next token already has its page
  const int64_t length = running.num_planned + 1 + num_drafts;
  if (running.sequence->outgrows(length, options_.limits.short_rope_tokens)) return false;
  return running_.grow_windows(running, num_drafts) && running_.grow(running, num_drafts);
}

// Returns `num_wanted` if the draft network has room for that many drafts after `num_drafts`
// planned ones, otherwise 0: its slots come after the step's tokens, within the sequence's length
// limit.
int64_t BatchScheduler::wanted_with_room(RunningSequence& running, int64_t num_drafts,
                                         int64_t num_wanted) {
  if (num_wanted == 0) return 0;
  const int64_t most = running.sequence->max_stored_tokens() - (running.num_planned + 1);
  const int64_t slots = options_.limits.draft_slots(num_wanted);
  return running_.grow(running, std::min(num_drafts + slots, most)) ? num_wanted : 0;
}

bool BatchScheduler::awaits_draws() { return drafts_.waits_for(running_.sequences()); }

void BatchScheduler::plan_prompts(int64_t num_decode_rows, const StepWork& streams,
                                  BatchPlan& plan) {
  const double now = clock_->now_seconds();
  if (!options_.scheduling.mixed_batches) find_streams();  // streams that decode in later steps
  running_.want_behind_prompts(drafts_.wanted_behind_prompts(decoding_),
                               drafts_.follows_prompts(decoding_));
  PrefillBudget budget = admission_.budget(num_decode_rows);
  pace_.limit_prefills(streams);
  if (admission_.open() || (!waiting_.empty() && running_.any_can_prefill())) {
    waiting_.order(running_, pace_.rates(), now);
    sharing_.mark(waiting_.entries(), running_);
  }
  admission_.choose_short_prompts(budget);
  admission_.continue_prefills(budget, plan);
  waiting_.expect_no_room();
  const auto blocked = admission_.admit_waiting(budget, plan, now);
  if (!blocked) return;
  // The victims' memory is free in the next pass, and the urgent sequence comes first in that pass.
  const PreemptionNeed need = admission_.need_of(*blocked, budget);
  for (RunningSequence* victim :
       preemption_.victims_for(need, running_, admission_.new_token_ratio(), now)) {
    leave(*victim, Leaving::kPreempted);
  }
}

// If false, the sequence skips this step or was itself retracted.
bool BatchScheduler::make_room_for_next_token(RunningSequence& running) {
  if (!running_.grow_windows(running)) return false;
  while (!running_.grow(running)) {
    if (running_.shrink_windows()) continue;
    if (!retract_one() || !running.stays()) return false;
  }
  return true;
}

// Returns one sequence to the queue. True if its memory is free already, false if it is freed only
// after the step in flight.
bool BatchScheduler::retract_one() {
  if (running_.any_leaving()) return false;  // a leaving sequence will free memory anyway
  RunningSequence* const victim = preemption_.choose_retraction(running_);
  if (victim == nullptr) {
    // The last running sequence shares a cached prefix that occupies pages it needs.
    HEDDLE_CHECK_EQ(running_.size(), 1);
    RunningSequence& last = *running_.sequences().front();
    HEDDLE_CHECK(!last.cached.publishes_only_at_end);  // check_fits() guarantees room for one
                                                       // sequence alone
    last.returns_without_cache = true;
    leave(last, Leaving::kRetracted);
    return false;
  }
  admission_.retracting(*victim);
  const bool at_once = victim->steps_in_flight == 0;
  leave(*victim, Leaving::kRetracted);
  return at_once;
}

// ---- A step ends ----

void BatchScheduler::complete(const BatchPlan& plan, const StepOutput& output) {
  HEDDLE_CHECK_GE(pace_.num_steps_in_flight(), 1);
  request::SpanReader<const SampledToken> spans(output.tokens);
  request::SpanReader<const request::MadeDraft> made(output.drafts);
  int32_t tenant = 0;
  int64_t drawn_of_tenant = 0;  // tokens drawn by consecutive sequences of `tenant`, not charged
                                // yet
  const auto charge = [&] {
    if (drawn_of_tenant > 0) fair_.charge_output(tenant, std::exchange(drawn_of_tenant, 0));
  };
  for (const PlannedSequence& planned : plan.sequences) {
    std::span<const SampledToken> drawn;
    if (planned.sample) {
      drawn = spans.next(planned.sequence_id);
      HEDDLE_CHECK(!drawn.empty());
    }
    judge_drafts(planned, drawn);
    RunningSequence& running = running_.in_slot(planned.batch_slot);
    const int64_t appended = running_.complete(planned, drawn, made.next(planned.sequence_id));
    if (running.tenant != tenant) {
      charge();
      tenant = running.tenant;
    }
    drawn_of_tenant += appended;
    if (running.is_removable()) {
      charge();
      remove(running);
    }
  }
  charge();
  HEDDLE_CHECK(spans.at_end() && made.at_end());
  if (std::ranges::all_of(plan.sequences, [](const auto& one) {
        return one.drafts.empty() || one.drafts_are_forced;
      })) {
    draft_odds_.fade();
  }
  pace_.step_completed(clock_->now_seconds(),
                       {.num_tokens = std::ssize(output.tokens), .warms_up = output.warms_up});
}

void BatchScheduler::judge_drafts(const PlannedSequence& planned,
                                  std::span<const SampledToken> drawn) {
  if (planned.drafts_are_forced) return;  // forced drafts say nothing about the drafter
  RunningSequence& running = running_.in_slot(planned.batch_slot);
  if (planned.drafts.empty()) {
    running.acceptance_trend.fade();
  } else {
    draft_odds_.verified(running.acceptance_trend, planned.drafts.count, std::ssize(drawn) - 1);
  }
}

void BatchScheduler::abandon(const BatchPlan& plan) {
  pace_.step_abandoned();
  for (const PlannedSequence& planned : plan.sequences) {
    RunningSequence& running = running_.in_slot(planned.batch_slot);
    running_.abandon(planned);
    if (running.is_removable()) remove(running);
  }
}

// ---- A sequence leaves ----

void BatchScheduler::leave(RunningSequence& running, Leaving how) {
  running.leaving = how;
  if (running.is_removable()) remove(running);
}

void BatchScheduler::remove(RunningSequence& running) {
  Sequence& sequence = *running.sequence;
  const bool returns = returns_to_queue(running.leaving);
  if (returns) {
    if (running.leaving == Leaving::kRetracted) {
      ++num_retractions_;
      ++sequence.num_retractions;
      const int64_t input = std::min(sequence.num_computed, sequence.num_prompt_tokens);
      retracted_input_tokens_ += input;
      retracted_output_tokens_ += sequence.num_computed - input;
    } else if (running.leaving == Leaving::kPreempted) {
      ++num_preemptions_;
      ++sequence.num_preemptions;
      preempted_tokens_ += sequence.num_computed;
    }
    sequence.status = SequenceStatus::kWaiting;
    fair_.give_back(running.tenant);
    waiting_.take_back({.sequence = &sequence,
                        .returned = true,
                        .without_cache = running.returns_without_cache,
                        .tenant = running.tenant,
                        .urgency = running.urgency,
                        .short_of_room = true,  // so that arrivals do not take the batch slot it
                                                // has just freed
                        .prefilled_at_arrival = running_.prefilled_tokens()});
  } else {
    sequence.status = SequenceStatus::kFinished;
    fair_.leave_running(running.tenant);
    admission_.sequence_left();
  }
  drafts_.ended(sequence);
  running_.remove(running);
  if (returns) sequence.choose_rope(options_.limits.short_rope_tokens);
  if (running_.empty()) admission_.idle();
}

void BatchScheduler::retract_all() {
  HEDDLE_CHECK_EQ(pace_.num_steps_in_flight(), 0);
  while (!running_.empty()) leave(*running_.sequences().back(), Leaving::kPaused);
}

void BatchScheduler::release(Sequence& sequence, Ending ending) {
  switch (sequence.status) {
    case SequenceStatus::kNew:
      sequence.status = SequenceStatus::kFinished;
      break;
    case SequenceStatus::kWaiting:
      waiting_.remove(sequence);
      break;
    case SequenceStatus::kRunning:
      sequence.status = SequenceStatus::kEnding;
      leave(running_.in_slot(sequence.batch_slot),
            ending == Ending::kDone ? Leaving::kDone : Leaving::kAborted);
      break;
    case SequenceStatus::kEnding:
      break;
    case SequenceStatus::kFinished:
      // The caller may destroy a displaced sequence before it calls take_dropped().
      waiting_.forget_displaced(sequence);
      break;
  }
}

void BatchScheduler::take_dropped(std::vector<Dropped>& dropped) {
  waiting_.take_displaced(dropped);
  if (!time_limits_.any()) return;
  const double now = clock_->now_seconds();
  const auto drop_if_late = [&](Sequence& sequence, bool never_ran) {
    Status status = time_limits_.check(sequence, never_ran, now);
    if (!status.ok()) dropped.push_back({.sequence = &sequence, .reason = std::move(status)});
  };
  for (const WaitingSequence& waiting : waiting_.sequences()) {
    drop_if_late(*waiting.sequence, !waiting.returned);
  }
  for (const RunningSequence* running : running_.sequences()) {
    if (!running->is_released()) drop_if_late(*running->sequence, false);
  }
}

// ---- Statistics and invariants ----

SchedulerStats BatchScheduler::stats() const {
  int64_t queued = 0;
  const double now = clock_->now_seconds();
  double oldest = now;
  int64_t waiting_tokens = 0;
  for (const WaitingSequence& waiting : waiting_.sequences()) {
    waiting_tokens += waiting.sequence->num_tokens() - waiting.matched_tokens;
    if (waiting.returned) continue;
    ++queued;
    oldest = std::min(oldest, waiting.sequence->timings.submit_seconds);
  }
  const cache::PrefixCacheStats cached = cache_.stats();
  return {
      .num_waiting = std::ssize(waiting_.sequences()),
      .num_queued = queued,
      .waiting_tokens = waiting_tokens,
      .oldest_wait_seconds = now - oldest,
      .num_deferred_arrivals = waiting_.num_deferred_arrivals(),
      .num_running = running_.size(),
      .num_open_slots = waiting_.num_open_slots(running_),
      .num_retractions = num_retractions_,
      .retracted_input_tokens = retracted_input_tokens_,
      .retracted_output_tokens = retracted_output_tokens_,
      .num_preemptions = num_preemptions_,
      .preempted_tokens = preempted_tokens_,
      .deferred_sequences = sharing_.num_deferred(),
      .new_token_ratio = admission_.new_token_ratio(),
      .prefill_tokens_per_second = pace_.rates().prefill_tokens_per_second,
      .kv_tokens_used = (cached.pages_used - cached.pages_cached) * options_.cache.pools.page_size,
      .cache = cached};
}

void BatchScheduler::check_invariants() const {
  running_.check_invariants(pace_.num_steps_in_flight());
  waiting_.check_invariants();
  cache_.check_invariants(running_.admitted());
}

}  // namespace heddle::scheduler
