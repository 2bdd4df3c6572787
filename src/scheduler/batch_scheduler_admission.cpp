// SPDX-License-Identifier: Apache-2.0
// Who of the waiting runs next.
#include <algorithm>
#include <utility>

#include "core/check.h"
#include "scheduler/batch_scheduler.h"
#include "scheduler/priorities.h"

namespace heddle::scheduler {

using request::BatchPlan;
using request::Sequence;
using request::SequenceStatus;

namespace {

class TreeShape final : public PrefixShape {
 public:
  explicit TreeShape(const cache::PrefixTree& tree) : tree_(tree) {}

  const void* parent(const void* node) const override {
    return tree_.parent(static_cast<const cache::PrefixNode*>(node));
  }

 private:
  const cache::PrefixTree& tree_;
};

}  // namespace

PrefillBudget BatchScheduler::make_budget(int64_t num_decoding) const {
  const cache::PrefixCacheOptions& pools = options_.cache;
  double reserved = 0;
  for (const int32_t index : running_) {
    const Sequence& sequence = *rows_[static_cast<size_t>(index)].sequence;
    reserved += ratio_.reserve(sequence.request.stop.max_new_tokens, sequence.num_output_tokens());
  }
  const bool on_grid = !pools.needs_state || cache::chunks_on_grid(pools.policy);
  const PrefillLimits limits{
      .page_size = pools.page_size,
      .chunk_grid = on_grid ? pools.grid : pools.page_size,
      .max_prefill_tokens = options_.scheduling.max_prefill_tokens,
      .chunk_tokens =
          std::min(options_.chunked_prefill_tokens + num_decoding, options_.max_step_tokens),
      .pages_at_admission = true};
  PrefillResources resources{.free_tokens = cache_.available_pages() * pools.page_size,
                             .reserved_tokens = reserved,
                             .mixed_tokens = num_decoding,
                             .free_rows = std::ssize(free_rows_)};
  if (pools.needs_state) resources.free_state_slots = cache_.available_states();
  return {limits, resources};
}

PrefillDemand BatchScheduler::demand(const Sequence& sequence,
                                     const cache::PrefixMatch& match) const {
  const int64_t start = cache_.resume_tokens(sequence, match);
  const int64_t shared = options_.cache.page_size * cache_.pages_to_own(sequence, match);
  const int64_t pending = sequence.num_tokens() - start;
  return {.context_tokens = start,
          .pending_tokens = std::max<int64_t>(pending, 1),
          .new_tokens_left =
              new_tokens_left(sequence.request.stop.max_new_tokens, sequence.num_output_tokens()),
          .held_tokens = std::clamp<int64_t>(pending - shared, 0, pending)};
}

// ---- Order ----

void BatchScheduler::order_waiting() {
  const double now = clock_->now_seconds();
  const bool reads = reads_matches(choice_.policy, std::ssize(waiting_));
  if (reads) match_waiting();
  int64_t top_urgency = std::numeric_limits<int64_t>::min();
  bool routing_key_runs = false;
  if (choice_.by_priority) {
    for (const Queued& queued : waiting_) top_urgency = std::max(top_urgency, queued.urgency);
    for (const int32_t index : running_) {
      top_urgency = std::max(top_urgency, rows_[static_cast<size_t>(index)].urgency);
    }
  }
  entries_.clear();
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Queued& queued = waiting_[i];
    const Request& request = queued.sequence->request;
    Waiting& entry = entries_.emplace_back();
    entry.index = static_cast<int32_t>(i);
    entry.sequence = queued.sequence;
    entry.arrival = queued.sequence->id;
    entry.queued_seconds = now - queued.sequence->timings.submit_seconds;
    entry.returned = queued.returned;
    entry.base_urgency = queued.urgency;
    entry.urgency = aged_urgency(queued.urgency, entry.queued_seconds,
                                 options_.scheduling.aging_seconds, top_urgency);
    entry.max_new_tokens = request.stop.max_new_tokens;
    entry.matched_tokens = queued.matched_tokens;
    entry.uncached_tokens = queued.sequence->num_tokens() - queued.matched_tokens;
    entry.match_node = queued.match_node;
    entry.engine_prefilled = prefilled_tokens_ - queued.prefilled_at_arrival;
    entry.tenant = queued.tenant;
    if (choice_.policy == QueuePolicy::kRoutingKey) {
      entry.routing_key = request.routing_key;
      for (const int32_t index : running_) {
        const std::string& key = rows_[static_cast<size_t>(index)].sequence->request.routing_key;
        routing_key_runs |= !key.empty();
        entry.routing_running += !key.empty() && key == request.routing_key ? 1 : 0;
      }
    }
    if (choice_.policy == QueuePolicy::kFair) {
      entry.slack_seconds =
          slack_seconds({.ttft_slo_seconds = request.ttft_slo_seconds,
                         .deadline_seconds = request.deadline_seconds,
                         .elapsed_seconds = request.waited_seconds + entry.queued_seconds,
                         .uncached_tokens = entry.uncached_tokens,
                         .has_first_token = queued.sequence->timings.first_token_seconds >= 0},
                        rates_);
    }
  }
  if (reads) {
    leaders_.begin();
    leaders_.mark(entries_);
  }
  const TreeShape shape(cache_.tree());
  order_.order(
      entries_,
      {.pass = pass_, .routing_key_runs = routing_key_runs, .shape = &shape, .fair = &fair_});
  sorted_.clear();
  for (const Waiting& entry : entries_) {
    sorted_.push_back(waiting_[static_cast<size_t>(entry.index)]);
  }
  std::swap(waiting_, sorted_);
}

// Matches what the order depends on: whatever the tree's growth may have changed, and every node
// that an entry points at, because nodes go when they are evicted.
void BatchScheduler::match_waiting() {
  const uint64_t epoch = cache_.tree().epoch() + 1;
  const bool needs_nodes = choice_.policy == QueuePolicy::kDfsWeight;
  int64_t count = 0;
  for (Queued& queued : waiting_) {
    queued.match_node = nullptr;
    if (count == kMaxMatchedWaiting || (!needs_nodes && queued.match_epoch == epoch)) continue;
    ++count;
    const cache::PrefixMatch match = cache_.match(*queued.sequence);
    queued.match_epoch = epoch;
    queued.matched_tokens = match.usable_tokens;
    if (needs_nodes) queued.match_node = match.kv_node;
  }
}

// ---- Admission ----

// Whether anybody could get in at all. If not, a step in which everybody decodes does not order the
// queue for nothing.
bool BatchScheduler::admits() const {
  return !waiting_.empty() && (!admission_paused_ || choice_.by_priority) &&
         (!free_rows_.empty() || preempts());
}

bool BatchScheduler::preempts() const {
  return choice_.by_priority && options_.scheduling.preemption;
}

void BatchScheduler::admit_waiting(PrefillBudget& budget, BatchPlan& plan) {
  if (!admits() || budget.remaining_chunk() <= 0) return;
  size_t considered = 0;
  for (size_t index = 0; index < waiting_.size(); ++considered) {
    Queued& queued = waiting_[index];
    if (admission_paused_ && queued.urgency <= paused_urgency_) {
      ++index;
      continue;
    }
    if (!fair_.may_run(queued.tenant)) {
      queued.short_of_room = false;
      ++index;
      continue;
    }
    const cache::PrefixMatch match =
        queued.alone ? cache::PrefixMatch{} : cache_.match(*queued.sequence);
    if (defers(queued, entries_[considered], match)) {
      queued.short_of_room = false;
      ++index;
      continue;
    }
    const PrefillVerdict verdict = admit(queued, match, budget, plan);
    if (verdict == PrefillVerdict::kAdmit) {
      waiting_.erase(waiting_.begin() + static_cast<int64_t>(index));
      if (budget.stop() != PrefillVerdict::kAdmit) break;
      continue;
    }
    // What the victims hold is there in the next pass, and the urgent one is first in it.
    if (verdict != PrefillVerdict::kBudget && preempts()) preempt_for(queued, match, budget);
    break;
  }
}

PrefillVerdict BatchScheduler::admit(const Queued& queued, const cache::PrefixMatch& match,
                                     PrefillBudget& budget, BatchPlan& plan) {
  if (free_rows_.empty()) return PrefillVerdict::kNoRow;
  Sequence& sequence = *queued.sequence;
  PrefillDemand asked = demand(sequence, match);
  asked.most_tokens = paced_tokens(budget, asked.context_tokens);
  const PrefillGrant grant = budget.check(asked);
  if (grant.verdict != PrefillVerdict::kAdmit) return grant.verdict;
  // A page for every running sequence stays, so that an admission is not undone by the next step.
  const int64_t available = cache_.available_pages();
  const int64_t own = cache_.pages_to_own(sequence, match);
  if (!start(queued, match, std::ssize(running_))) {
    return options_.cache.needs_state && cache_.available_states() < 1 ? PrefillVerdict::kNoState
                                                                       : PrefillVerdict::kNoMemory;
  }
  budget.admit(asked, grant);
  const int64_t pinned = available - cache_.available_pages() - own;
  if (pinned > 0) budget.pin(pinned * options_.cache.page_size);
  ask_for_forks(rows_[static_cast<size_t>(sequence.batch_slot)]);
  const int64_t pending = sequence.num_tokens() - sequence.num_computed;
  add_prefill(sequence.batch_slot, std::min(grant.tokens, pending), plan);
  return PrefillVerdict::kAdmit;
}

// Gives the sequence a row and all it needs to run, or nothing and false.
bool BatchScheduler::start(const Queued& queued, const cache::PrefixMatch& match,
                           int64_t headroom) {
  const int32_t index = free_rows_.back();
  Row& row = rows_[static_cast<size_t>(index)];
  Sequence& sequence = *queued.sequence;
  // What the sequence may grow to, so that no later step allocates and views into it stay valid.
  sequence.tokens.reserve(static_cast<size_t>(sequence.max_stored_tokens() + 1));
  const int64_t page_size = options_.cache.page_size;
  sequence.pages.reserve(
      static_cast<size_t>((sequence.max_stored_tokens() + page_size - 1) / page_size));
  if (!cache_.admit(sequence, match, headroom, row.hold)) return false;
  row.hold.keeps_to_itself = queued.alone;
  if (!queued.returned) {
    if (!queued.alone) sequence.cache_report.lost = cache_.loss(sequence, match);
    sequence.cache_report.reused_tokens =
        std::min(sequence.num_computed, sequence.num_prompt_tokens);
    sequence.cache_report.matched_tokens = match.kv_tokens;
    sequence.cache_report.exact_repeat = sequence.num_computed == sequence.num_tokens();
    if (queued.deferred_since >= 0) {
      sequence.cache_report.deferred_seconds = clock_->now_seconds() - queued.deferred_since;
    }
  }
  fair_.admit(queued.tenant, sequence.num_tokens() - sequence.num_computed, sequence.num_computed,
              queued.returned);
  sequence.status = SequenceStatus::kRunning;
  sequence.batch_slot = index;
  row.sequence = &sequence;
  row.num_planned = sequence.num_computed;
  row.steps_in_flight = 0;
  row.draws_in_flight = 0;
  row.admitted_seconds = clock_->now_seconds();
  row.tenant = queued.tenant;
  row.urgency = queued.urgency;
  free_rows_.pop_back();
  running_.push_back(index);
  return true;
}

// Nothing runs: the first one waiting does, whatever the estimates say.
void BatchScheduler::admit_first(BatchPlan& plan) {
  if (waiting_.empty()) return;
  admission_paused_ = false;
  order_waiting();
  Queued queued = waiting_.front();
  cache::PrefixMatch match = queued.alone ? cache::PrefixMatch{} : cache_.match(*queued.sequence);
  if (!start(queued, match, 0)) {
    queued.alone = true;
    match = {};
    HEDDLE_CHECK(start(queued, match, 0));  // check_fits() promised it room
  }
  waiting_.erase(waiting_.begin());
  const Sequence& sequence = *queued.sequence;
  const int64_t pending = sequence.num_tokens() - sequence.num_computed;
  PrefillDemand asked = demand(sequence, match);
  PrefillBudget budget = make_budget(0);
  add_prefill(sequence.batch_slot, std::min(budget.resume(asked).tokens, pending), plan);
}

// ---- Prefixes that are being computed ----

// Finds out who of the waiting begins like somebody who runs, or like somebody further ahead in the
// queue, and asks those that run for snapshots where the two part.
void BatchScheduler::mark_followers() {
  if (!options_.shares_in_flight || !options_.cache.enabled) return;
  followers_.begin();
  for (const int32_t index : running_) {
    const Row& row = rows_[static_cast<size_t>(index)];
    if (can_prefill(row)) followers_.add_running(*row.sequence);
  }
  const size_t count = std::min(entries_.size(), static_cast<size_t>(kMaxMatchedWaiting));
  followers_.mark(std::span<Waiting>(entries_).first(count));
  for (const int32_t index : running_) {
    Row& row = rows_[static_cast<size_t>(index)];
    if (can_prefill(row)) ask_for_forks(row);
  }
}

// Where the follower parts from its leader, as far as it can use it.
int64_t BatchScheduler::fork_of(const Waiting& follower) const {
  const int64_t shared = std::min(follower.shared_tokens, follower.sequence->num_tokens() - 1);
  return shared - shared % options_.cache.grid;
}

void BatchScheduler::ask_for_forks(Row& leader) {
  if (leader.hold.keeps_to_itself) return;
  for (const Waiting& entry : entries_) {
    if (entry.leader != leader.sequence->id) continue;
    const int64_t fork = fork_of(entry);
    if (fork >= kMinSharedTokens) cache_.want_snapshot(leader.hold, fork, leader.num_planned);
  }
}

bool BatchScheduler::defers(Queued& queued, const Waiting& entry, const cache::PrefixMatch& match) {
  if (entry.leader == kNoLeader) return false;
  const double now = clock_->now_seconds();
  const double waited = queued.deferred_since < 0 ? 0 : now - queued.deferred_since;
  if (!followers_.waits_for_leader(entry, waited)) return false;
  const auto leads = [&](int32_t index) {
    return rows_[static_cast<size_t>(index)].sequence->id == entry.leader;
  };
  const auto found = std::find_if(running_.begin(), running_.end(), leads);
  if (found == running_.end()) return false;
  Row& leader = rows_[static_cast<size_t>(*found)];
  if (leader.leaving != Leaving::kNo || leader.hold.keeps_to_itself) return false;

  // Worth it only for many more tokens than are cached already, unless they are there with the step
  // in flight.
  const int64_t fork = fork_of(entry);
  const int64_t enough =
      match.usable_tokens + (leader.num_planned < fork ? kMinSharedTokens : options_.cache.grid);
  if (fork < enough || !cache_.will_publish(leader.hold, enough, fork, leader.num_planned)) {
    return false;
  }
  if (queued.deferred_since < 0) {
    queued.deferred_since = now;
    ++num_deferred_;
  }
  return true;
}

// ---- Preemption ----

void BatchScheduler::preempt_for(const Queued& queued, const cache::PrefixMatch& match,
                                 const PrefillBudget& budget) {
  preemption_candidates_.clear();
  candidate_rows_.clear();
  const double now = clock_->now_seconds();
  for (const int32_t index : running_) {
    const Row& row = rows_[static_cast<size_t>(index)];
    if (row.leaving != Leaving::kNo) return;  // room is on its way
    const Sequence& sequence = *row.sequence;
    const int64_t shared_pages = row.hold.shared_tokens / options_.cache.page_size;
    candidate_rows_.push_back(index);
    preemption_candidates_.push_back(
        {.urgency = row.urgency,
         .arrival = sequence.id,
         .max_new_tokens = sequence.request.stop.max_new_tokens,
         .output_tokens = sequence.num_output_tokens(),
         .held_tokens = (std::ssize(sequence.pages) - shared_pages) * options_.cache.page_size,
         .state_slots = options_.cache.needs_state ? 1 : 0,
         .num_preemptions = sequence.num_preemptions,
         .run_seconds = now - row.admitted_seconds});
  }
  const PrefillDemand asked = demand(*queued.sequence, match);
  const bool lacks_state = options_.cache.needs_state && cache_.available_states() < 1;
  const PreemptionNeed need{
      .urgency = queued.urgency,
      .tokens = static_cast<double>(asked.pending_tokens - asked.held_tokens +
                                    asked.new_tokens_left + options_.cache.page_size) -
                budget.remaining_total(),
      .rows = free_rows_.empty() ? 1 : 0,
      .state_slots = lacks_state ? 1 : 0};
  if (!choose_victims(need, preemption_candidates_, ratio_.value(), preemption_rules_, chosen_)) {
    return;
  }
  for (const int32_t victim : chosen_) {
    leave(candidate_rows_[static_cast<size_t>(victim)], Leaving::kPreempted);
  }
}

}  // namespace heddle::scheduler
