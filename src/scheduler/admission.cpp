// SPDX-License-Identifier: Apache-2.0
#include "scheduler/admission.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cache/resume_plan.h"
#include "core/check.h"

namespace heddle::scheduler {

using request::BatchPlan;
using request::Sequence;

namespace {

// How many tokens after the first `context_tokens` a step can compute if at most `rows` of them
// score the next token.
int64_t tokens_with_scores(const Sequence& sequence, int64_t context_tokens, int64_t rows) {
  const auto [first, count] = sequence.scored_rows(context_tokens, sequence.num_tokens());
  return count <= rows ? std::numeric_limits<int64_t>::max() : first - context_tokens + rows;
}

}  // namespace

Admission::Admission(const AdmissionOptions& options, const Parts& parts)
    : options_(options), parts_(parts), ratio_(options.conservativeness) {}

bool Admission::open() const {
  const bool may_preempt = options_.by_priority && options_.preemption;
  return !parts_.waiting.empty() && (!paused_ || options_.by_priority) &&
         (parts_.running.num_free_slots() > 0 || may_preempt);
}

PrefillBudget Admission::budget(int64_t num_decoding) const {
  double reserved = 0;
  for (const RunningSequence* running : parts_.running.sequences()) {
    const Sequence& sequence = *running->sequence;
    reserved += ratio_.reserve(sequence.request.stop.max_new_tokens, sequence.num_output_tokens());
  }
  PrefillLimits limits = options_.limits;
  limits.chunk_tokens = std::min(limits.chunk_tokens + num_decoding, options_.max_step_tokens);
  PrefillResources resources{.free_tokens = parts_.cache.available_pages() * limits.page_size,
                             .reserved_tokens = reserved,
                             .mixed_tokens = num_decoding,
                             .free_batch_slots = parts_.running.num_free_slots(),
                             .scored_rows = options_.max_scored_rows};
  if (options_.needs_state) resources.free_state_slots = parts_.cache.available_states();
  return {limits, resources};
}

PrefillDemand Admission::demand(const Sequence& sequence, const cache::PrefixMatch& match) const {
  const int64_t start = parts_.cache.resume_tokens(sequence, match);
  const int64_t new_pages = parts_.cache.pages_to_own(sequence, match);
  const int64_t pending = sequence.num_tokens() - start;
  return {.context_tokens = start,
          .pending_tokens = std::max<int64_t>(pending, 1),
          .new_tokens_left =
              new_tokens_left(sequence.request.stop.max_new_tokens, sequence.num_output_tokens()),
          .held_tokens =
              std::clamp<int64_t>(pending - options_.limits.page_size * new_pages, 0, pending)};
}

bool Admission::lacks_state() const {
  return options_.needs_state && parts_.cache.available_states() < 1;
}

cache::PrefixMatch Admission::match_of(const WaitingSequence& waiting) const {
  return waiting.without_cache ? cache::PrefixMatch{} : parts_.cache.match(*waiting.sequence);
}

void Admission::plan_prefill(RunningSequence& running, int64_t num_tokens, PrefillBudget& budget,
                             BatchPlan& plan) {
  parts_.pace.add_prefill(num_tokens, running.num_planned);
  parts_.running.plan_prefill(running, num_tokens, plan);
  budget.take_scored_rows(plan.sequences.back().scored.count);
}

void Admission::choose_short_prompts(const PrefillBudget& budget) {
  short_.clear();
  short_tokens_ = 0;
  const bool cuts_prompts = options_.limits.chunk_tokens > 0;
  if (!options_.short_prompts_pass || !cuts_prompts || paused_ || !open()) return;
  // Chunks of the other prompts end on the grid, so reserving less than a grid step would cost them
  // a whole one. And if the pass's input is not larger than the chunk, nothing is left for short
  // prompts.
  int64_t most = budget.remaining_chunk() / kShortPart;
  most -= most % std::lcm(options_.limits.chunk_grid, int64_t{options_.limits.page_size});
  if (budget.remaining_input() <= budget.remaining_chunk()) return;
  // The memory left if all prompts up to this one were admitted and none of their tokens were
  // cached.
  double memory = budget.remaining_total();
  int64_t batch_slots = parts_.running.num_free_slots();
  int64_t states = options_.needs_state ? parts_.cache.available_states() : batch_slots;
  const std::span<const QueueEntry> entries = parts_.waiting.entries();
  for (size_t i = 0; i < std::min(entries.size(), kMostPassed); ++i) {
    const WaitingSequence& waiting = parts_.waiting[i];
    const Sequence& sequence = *waiting.sequence;
    memory -= static_cast<double>(
        sequence.num_tokens() +
        new_tokens_left(sequence.request.stop.max_new_tokens, sequence.num_output_tokens()) +
        2 * options_.limits.page_size);
    if (memory <= 0 || batch_slots-- <= 0 || states-- <= 0 || short_tokens_ >= most) return;
    if (sequence.wants_scores() || !parts_.fair.may_run(waiting.tenant)) continue;
    const cache::PrefixMatch match = match_of(waiting);
    if (parts_.sharing.may_defer(entries[i], match)) continue;
    const int64_t tokens = demand(sequence, match).pending_tokens;
    if (tokens > most - short_tokens_) continue;
    short_.push_back({.sequence = &sequence, .tokens = tokens});
    short_tokens_ += tokens;
  }
}

// Whether the sequence was chosen as a short prompt. Ends the reservation of its tokens.
bool Admission::take_short(const Sequence& sequence) {
  const auto found = std::ranges::find(short_, &sequence, &ShortPrompt::sequence);
  if (found == short_.end()) return false;
  short_tokens_ -= found->tokens;
  short_.erase(found);
  return true;
}

// Most tokens of one prompt in this step, by time and by the tokens reserved for short prompts.
int64_t Admission::most_tokens(const PrefillBudget& budget, int64_t context_tokens) const {
  const int64_t in_time = parts_.pace.max_prefill_tokens(budget, context_tokens);
  return std::min(in_time - std::min(short_tokens_, in_time / kShortPart),
                  budget.remaining_chunk() - short_tokens_);
}

void Admission::continue_prefills(PrefillBudget& budget, BatchPlan& plan) {
  for (RunningSequence* running : parts_.running.sequences()) {
    if (!running->can_prefill()) continue;
    const Sequence& sequence = *running->sequence;
    const int64_t context = running->num_planned;
    const int64_t pending = sequence.num_tokens() - context;
    const PrefillGrant grant =
        budget.resume({.context_tokens = context,
                       .pending_tokens = pending,
                       .new_tokens_left = new_tokens_left(sequence.request.stop.max_new_tokens,
                                                          sequence.num_output_tokens()),
                       .held_tokens = pending,
                       .most_tokens = std::min(most_tokens(budget, context),
                                               parts_.cache.window_room(running->cached, context)),
                       .most_scored_tokens =
                           tokens_with_scores(sequence, context, budget.remaining_scored_rows())});
    if (grant.tokens > 0) plan_prefill(*running, grant.tokens, budget, plan);
  }
}

std::optional<Admission::Blocked> Admission::admit_waiting(PrefillBudget& budget, BatchPlan& plan,
                                                           double now_seconds) {
  if (!open() || budget.remaining_chunk() <= 0) return std::nullopt;
  WaitingQueue& queue = parts_.waiting;
  const std::span<const QueueEntry> entries = queue.entries();
  // The entries stay valid when sequences leave the queue. Deferred ones follow the last entry.
  size_t index = 0;
  bool only_short = false;  // the remaining tokens of the step are reserved for short prompts
  for (size_t considered = 0; considered < entries.size(); ++considered) {
    WaitingSequence& waiting = queue[index];
    if (!take_short(*waiting.sequence) && only_short) {
      ++index;
      continue;
    }
    if (paused_ && waiting.urgency <= paused_urgency_) {
      ++index;
      continue;
    }
    if (!parts_.fair.may_run(waiting.tenant)) {
      waiting.short_of_room = false;
      ++index;
      continue;
    }
    const cache::PrefixMatch match = match_of(waiting);
    if (parts_.sharing.defers(waiting, entries[considered], match, parts_.running, now_seconds)) {
      waiting.short_of_room = false;
      ++index;
      continue;
    }
    const PrefillVerdict verdict = admit(waiting, match, budget, plan, now_seconds);
    if (verdict == PrefillVerdict::kAdmit) {
      queue.remove_at(index);
      if (budget.stop() != PrefillVerdict::kAdmit) return std::nullopt;
      continue;
    }
    if (verdict == PrefillVerdict::kBudget && lacks_scored_rows(*waiting.sequence, match, budget)) {
      waiting.short_of_room = false;  // the other prompts need no rows for scoring
      ++index;
      continue;
    }
    if (verdict == PrefillVerdict::kBudget && short_tokens_ > 0) {
      only_short = true;
      ++index;
      continue;
    }
    const bool may_preempt = options_.by_priority && options_.preemption;
    if (verdict == PrefillVerdict::kBudget || !may_preempt) return std::nullopt;
    return Blocked{.waiting = waiting, .match = match};
  }
  return std::nullopt;
}

// Whether more of the prompt would be computed if the step had more rows for scoring.
bool Admission::lacks_scored_rows(const Sequence& sequence, const cache::PrefixMatch& match,
                                  const PrefillBudget& budget) const {
  if (!sequence.wants_scores()) return false;
  const int64_t start = parts_.cache.resume_tokens(sequence, match);
  return tokens_with_scores(sequence, start, budget.remaining_scored_rows()) <
         sequence.num_tokens() - start;
}

PrefillVerdict Admission::admit(const WaitingSequence& waiting, const cache::PrefixMatch& match,
                                PrefillBudget& budget, BatchPlan& plan, double now_seconds) {
  if (parts_.running.num_free_slots() == 0) return PrefillVerdict::kNoBatchSlot;
  Sequence& sequence = *waiting.sequence;
  PrefillDemand asked = demand(sequence, match);
  asked.most_tokens = std::min(most_tokens(budget, asked.context_tokens),
                               parts_.cache.window_room(sequence, match));
  asked.most_scored_tokens =
      tokens_with_scores(sequence, asked.context_tokens, budget.remaining_scored_rows());
  const PrefillGrant grant = budget.check(asked);
  if (grant.verdict != PrefillVerdict::kAdmit) return grant.verdict;
  // Leaves a free page for every running sequence, so that the next step does not retract what was
  // just admitted.
  const int64_t headroom = parts_.running.size();
  const int64_t available = parts_.cache.available_pages();
  const int64_t own = parts_.cache.pages_to_own(sequence, match);
  RunningSequence* const running = start(waiting, match, headroom, now_seconds);
  if (running == nullptr) {
    return lacks_state() ? PrefillVerdict::kNoState : PrefillVerdict::kNoMemory;
  }
  budget.admit(asked, grant);
  const int64_t pinned = available - parts_.cache.available_pages() - own;
  if (pinned > 0) budget.pin(pinned * options_.limits.page_size);
  parts_.sharing.ask_for_forks(*running, parts_.waiting.entries());
  const int64_t pending = sequence.num_tokens() - sequence.num_computed;
  plan_prefill(*running, std::min(grant.tokens, pending), budget, plan);
  return PrefillVerdict::kAdmit;
}

// Starts the sequence in a batch slot; null if there is no room.
RunningSequence* Admission::start(const WaitingSequence& waiting, const cache::PrefixMatch& match,
                                  int64_t headroom, double now_seconds) {
  Sequence& sequence = *waiting.sequence;
  RunningSequence* const running =
      parts_.running.start(sequence, match, headroom, waiting.without_cache);
  if (running == nullptr) return nullptr;
  running->admitted_seconds = now_seconds;
  running->tenant = waiting.tenant;
  running->urgency = waiting.urgency;
  if (!waiting.returned) {
    CacheReport& report = sequence.cache_report;
    if (!waiting.without_cache) report.lost = parts_.cache.loss(sequence, match);
    report.reused_tokens = std::min(sequence.num_computed, sequence.num_prompt_tokens);
    report.matched_tokens = cache::known_of(sequence, match);
    report.exact_repeat = sequence.num_computed == sequence.num_tokens();
    if (waiting.deferred_since >= 0) {
      report.deferred_seconds = now_seconds - waiting.deferred_since;
    }
  }
  parts_.fair.admit(waiting.tenant, sequence.num_tokens() - sequence.num_computed,
                    sequence.num_computed, waiting.returned);
  return running;
}

void Admission::admit_first(BatchPlan& plan, double now_seconds) {
  if (parts_.waiting.empty()) return;
  paused_ = false;
  parts_.waiting.order(parts_.running, parts_.pace.rates(), now_seconds);
  if (parts_.waiting.entries().empty()) return;  // all waiting sequences are deferred arrivals
  WaitingSequence first = parts_.waiting[0];
  cache::PrefixMatch match = match_of(first);
  RunningSequence* running = start(first, match, 0, now_seconds);
  if (running == nullptr) {
    first.without_cache = true;
    match = {};
    running = start(first, match, 0, now_seconds);
    HEDDLE_CHECK(running != nullptr);  // check_fits() guarantees room for one sequence
  }
  parts_.waiting.remove_at(0);
  const Sequence& sequence = *first.sequence;
  const int64_t pending = sequence.num_tokens() - sequence.num_computed;
  PrefillBudget step = budget(0);
  PrefillDemand asked = demand(sequence, match);
  asked.most_tokens = parts_.cache.window_room(running->cached, sequence.num_computed);
  asked.most_scored_tokens =
      tokens_with_scores(sequence, sequence.num_computed, step.remaining_scored_rows());
  plan_prefill(*running, std::min(step.resume(asked).tokens, pending), step, plan);
}

PreemptionNeed Admission::need_of(const Blocked& blocked, const PrefillBudget& budget) const {
  const PrefillDemand asked = demand(*blocked.waiting.sequence, blocked.match);
  return {.urgency = blocked.waiting.urgency,
          .tokens = static_cast<double>(asked.pending_tokens - asked.held_tokens +
                                        asked.new_tokens_left + options_.limits.page_size) -
                    budget.remaining_total(),
          .batch_slots = parts_.running.num_free_slots() == 0 ? 1 : 0,
          .state_slots = lacks_state() ? 1 : 0};
}

void Admission::retracting(const RunningSequence& victim) {
  int64_t sum_output = 0;
  int64_t sum_max = 0;
  for (const RunningSequence* running : parts_.running.sequences()) {
    if (running == &victim) continue;
    sum_output += running->sequence->num_output_tokens();
    sum_max += running->sequence->request.stop.max_new_tokens;
  }
  ratio_.after_retraction(sum_output, sum_max, parts_.running.size() - 1);
  paused_ = true;
  paused_urgency_ = victim.urgency;
}

void Admission::idle() {
  ratio_.reset();
  paused_ = false;
}

}  // namespace heddle::scheduler
