// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fcfs_scheduler.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::scheduler {

using request::BatchPlan;
using request::PlannedSequence;
using request::SampledToken;
using request::Sequence;
using request::SequenceStatus;
using request::StepOutput;

namespace {

std::vector<Sequence*>::const_iterator position_of(const std::vector<Sequence*>& list, int64_t id) {
  return std::lower_bound(list.begin(), list.end(), id,
                          [](const Sequence* sequence, int64_t key) { return sequence->id < key; });
}

}  // namespace

FcfsScheduler::FcfsScheduler(const SchedulerOptions& options)
    : options_(options),
      pages_(options.num_pages, options.page_size),
      states_(options.num_state_slots),
      last_id_(std::numeric_limits<int64_t>::min()) {
  HEDDLE_CHECK_GE(options_.num_pages, 1);
  HEDDLE_CHECK_GE(options_.max_step_tokens, 1);
  HEDDLE_CHECK_GE(options_.chunked_prefill_tokens, 1);
  HEDDLE_CHECK_GE(options_.max_running, 1);
  HEDDLE_CHECK_GE(options_.chunk_grid, 1);
  int64_t rows = std::min<int64_t>(options_.max_running, options_.max_step_tokens);
  if (options_.needs_state) {
    HEDDLE_CHECK_GE(options_.num_state_slots, 1);
    rows = std::min(rows, options_.num_state_slots);
  }
  options_.max_running = static_cast<int32_t>(rows);
  running_.reserve(static_cast<size_t>(rows));
  waiting_.reserve(static_cast<size_t>(rows + std::max(options_.max_queued, 0)));
}

Status FcfsScheduler::check_fits(const Sequence& sequence) const {
  const int64_t needed = sequence.max_stored_tokens();
  const int64_t available = options_.num_pages * options_.page_size;
  if (needed <= available) return {};
  return invalid_argument(fmt::format(
      "the request needs room for {} tokens ({} in the prompt, max_new_tokens = {}), but the KV "
      "pool "
      "holds {}; shorten it, or start the engine with more memory or a larger max_total_tokens",
      needed, sequence.num_prompt_tokens, sequence.request.stop.max_new_tokens, available));
}

Status FcfsScheduler::submit(Sequence& sequence) {
  HEDDLE_CHECK(sequence.status == SequenceStatus::kNew);
  HEDDLE_CHECK_LT(last_id_, sequence.id);
  HEDDLE_RETURN_IF_ERROR(check_fits(sequence));
  if (num_queued_ >= options_.max_queued) {
    return resource_exhausted(
        fmt::format("{} requests are waiting, max_queued_requests = {}; try again later",
                    num_queued_, options_.max_queued));
  }
  last_id_ = sequence.id;
  sequence.status = SequenceStatus::kWaiting;
  waiting_.push_back(&sequence);
  ++num_queued_;
  return {};
}

void FcfsScheduler::plan(BatchPlan& plan) {
  plan.sequences.clear();
  plan.zero_state_slots.clear();
  grow_decoding();

  int64_t budget = options_.max_step_tokens;
  for (const Sequence* sequence : running_) budget -= sequence->decoding() ? 1 : 0;
  budget = std::min(budget, options_.chunked_prefill_tokens);
  bool first = true;
  for (Sequence* sequence : running_) {
    if (sequence->decoding()) {
      add(*sequence, 1, plan);
      continue;
    }
    const int64_t chunk = chunk_size(*sequence, budget, first);
    if (chunk == 0) continue;
    add(*sequence, chunk, plan);
    budget -= chunk;
    first = false;
  }

  while (!waiting_.empty() && !admission_paused_) {
    Sequence& sequence = *waiting_.front();
    const int64_t chunk = chunk_size(sequence, budget, first);
    if (chunk == 0 || !admit(sequence)) break;
    add(sequence, chunk, plan);
    budget -= chunk;
    first = false;
  }
}

void FcfsScheduler::grow_decoding() {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence* const sequence = running_[i];
    while (sequence->status == SequenceStatus::kRunning &&
           !pages_.grow(sequence->num_tokens(), sequence->pages)) {
      HEDDLE_CHECK_LT(1, static_cast<int64_t>(running_.size()));  // alone it fits: check_fits()
      retract_youngest();
    }
  }
}

void FcfsScheduler::retract_youngest() {
  Sequence& sequence = *running_.back();
  running_.pop_back();
  release_resources(sequence);
  sequence.num_computed = 0;
  ++sequence.num_retractions;
  sequence.status = SequenceStatus::kWaiting;
  waiting_.insert(waiting_.begin(), &sequence);  // older than everyone there
  ++num_retractions_;
  admission_paused_ = true;
}

bool FcfsScheduler::admit(Sequence& sequence) {
  if (running_.size() >= static_cast<size_t>(options_.max_running)) return false;
  const int64_t headroom = static_cast<int64_t>(running_.size());
  if (pages_.pages_for(sequence.num_tokens()) + headroom > pages_.num_free()) return false;
  int32_t slot = 0;
  if (options_.needs_state) {
    slot = states_.allocate();
    if (slot == 0) return false;
  }
  // What the sequence may grow to, so that no later step allocates.
  sequence.tokens.reserve(static_cast<size_t>(sequence.max_stored_tokens() + 1));
  sequence.pages.reserve(static_cast<size_t>(pages_.pages_for(sequence.max_stored_tokens())));
  HEDDLE_CHECK(pages_.grow(sequence.num_tokens(), sequence.pages));
  sequence.state_slot = slot;
  if (sequence.num_retractions == 0) --num_queued_;
  sequence.status = SequenceStatus::kRunning;
  waiting_.erase(waiting_.begin());
  running_.push_back(&sequence);
  return true;
}

int64_t FcfsScheduler::chunk_size(const Sequence& sequence, int64_t budget, bool first) const {
  if (budget <= 0) return 0;
  const int64_t pending = sequence.num_pending();
  if (pending <= budget) return pending;
  const int64_t end = sequence.num_computed + budget;
  const int64_t on_grid = end - end % options_.chunk_grid - sequence.num_computed;
  if (on_grid > 0) return on_grid;
  return first ? budget : 0;
}

void FcfsScheduler::add(Sequence& sequence, int64_t num_new_tokens, BatchPlan& plan) {
  const bool last = num_new_tokens == sequence.num_pending();
  if (sequence.num_computed == 0 && sequence.state_slot != 0) {
    plan.zero_state_slots.push_back(sequence.state_slot);
  }
  plan.sequences.push_back({.sequence_id = sequence.id,
                            .new_tokens = std::span<const TokenId>(sequence.tokens)
                                              .subspan(static_cast<size_t>(sequence.num_computed),
                                                       static_cast<size_t>(num_new_tokens)),
                            .context_tokens = sequence.num_computed,
                            .pages = sequence.pages,
                            .state_slot = sequence.state_slot,
                            .checkpoints = {},
                            .sample = last && sequence.wants_tokens(),
                            .sampling = &sequence.request.sampling,
                            .seed = sequence.seed,
                            .choice_index = sequence.request.choice_index,
                            .output_tokens = sequence.output_tokens(),
                            .forbidden_tokens = sequence.forbidden_tokens(),
                            .return_logprobs = sequence.request.return_logprobs,
                            .top_logprobs = sequence.request.top_logprobs});
}

void FcfsScheduler::complete(const BatchPlan& plan, const StepOutput& output) {
  size_t next = 0;
  for (const PlannedSequence& planned : plan.sequences) {
    const SampledToken* sampled = nullptr;
    if (planned.sample) {
      HEDDLE_CHECK_LT(next, output.tokens.size());
      sampled = &output.tokens[next++];
      HEDDLE_CHECK_EQ(sampled->sequence_id, planned.sequence_id);
    }
    const auto found = position_of(running_, planned.sequence_id);
    if (found == running_.end() || (*found)->id != planned.sequence_id) continue;  // released
    Sequence& sequence = **found;
    HEDDLE_CHECK_EQ(sequence.num_computed, planned.context_tokens);
    sequence.num_computed += static_cast<int64_t>(planned.new_tokens.size());
    if (sequence.state_slot != 0) states_.set_label(sequence.state_slot, sequence.num_computed);
    if (sampled != nullptr && sampled->error.ok()) sequence.tokens.push_back(sampled->token);
  }
  HEDDLE_CHECK_EQ(next, output.tokens.size());
}

void FcfsScheduler::release_resources(Sequence& sequence) {
  pages_.release(sequence.pages);
  if (sequence.state_slot != 0) states_.release(sequence.state_slot);
  sequence.state_slot = 0;
}

void FcfsScheduler::release(Sequence& sequence) {
  std::vector<Sequence*>* list = nullptr;
  if (sequence.status == SequenceStatus::kRunning) list = &running_;
  if (sequence.status == SequenceStatus::kWaiting) list = &waiting_;
  if (list != nullptr) {
    const auto found = position_of(*list, sequence.id);
    HEDDLE_CHECK(found != list->end() && *found == &sequence);
    list->erase(found);
    if (list == &waiting_ && sequence.num_retractions == 0) --num_queued_;
    release_resources(sequence);
    admission_paused_ = false;
  }
  sequence.status = SequenceStatus::kFinished;
}

SchedulerStats FcfsScheduler::stats() const {
  return {.num_waiting = static_cast<int64_t>(waiting_.size()),
          .num_queued = num_queued_,
          .num_running = static_cast<int64_t>(running_.size()),
          .pages_used = pages_.num_used(),
          .state_slots_used = states_.num_used(),
          .num_retractions = num_retractions_};
}

void FcfsScheduler::check_invariants() const {
  pages_.check_invariants();
  states_.check_invariants();
  HEDDLE_CHECK_LE(static_cast<int64_t>(running_.size()), int64_t{options_.max_running});
  std::vector<bool> page_seen(static_cast<size_t>(options_.num_pages) + 1, false);
  std::vector<bool> slot_seen(static_cast<size_t>(options_.num_state_slots) + 1, false);
  int64_t pages_held = 0;
  int64_t slots_held = 0;
  int64_t previous_id = std::numeric_limits<int64_t>::min();
  for (const Sequence* sequence : running_) {
    HEDDLE_CHECK(sequence->status == SequenceStatus::kRunning);
    HEDDLE_CHECK_LT(previous_id, sequence->id);
    previous_id = sequence->id;
    HEDDLE_CHECK_GE(sequence->num_pending(), 0);
    HEDDLE_CHECK_GE(static_cast<int64_t>(sequence->pages.size()),
                    pages_.pages_for(sequence->num_computed));
    HEDDLE_CHECK_LE(static_cast<int64_t>(sequence->pages.size()),
                    pages_.pages_for(sequence->num_tokens()));
    for (const int32_t page : sequence->pages) {
      HEDDLE_CHECK(pages_.ids().owner(page) == cache::Owner::kRequest);
      HEDDLE_CHECK(!page_seen[static_cast<size_t>(page)]);
      page_seen[static_cast<size_t>(page)] = true;
      ++pages_held;
    }
    HEDDLE_CHECK_EQ(sequence->state_slot != 0, options_.needs_state);
    if (sequence->state_slot == 0) continue;
    HEDDLE_CHECK(!slot_seen[static_cast<size_t>(sequence->state_slot)]);
    slot_seen[static_cast<size_t>(sequence->state_slot)] = true;
    HEDDLE_CHECK_EQ(states_.label(sequence->state_slot), sequence->num_computed);
    ++slots_held;
  }
  HEDDLE_CHECK_EQ(pages_held, pages_.num_used());
  HEDDLE_CHECK_EQ(slots_held, states_.num_used());
  int64_t num_queued = 0;
  for (const Sequence* sequence : waiting_) {
    HEDDLE_CHECK(sequence->status == SequenceStatus::kWaiting);
    HEDDLE_CHECK_LT(previous_id, sequence->id);
    previous_id = sequence->id;
    HEDDLE_CHECK(sequence->pages.empty() && sequence->state_slot == 0);
    HEDDLE_CHECK_EQ(sequence->num_computed, 0);
    num_queued += sequence->num_retractions == 0 ? 1 : 0;
  }
  HEDDLE_CHECK_EQ(num_queued, num_queued_);
}

}  // namespace heddle::scheduler
