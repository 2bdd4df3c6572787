// SPDX-License-Identifier: Apache-2.0
#include "scheduler/waiting_queue.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "request/refusal.h"

namespace heddle::scheduler {

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

WaitingQueue::WaitingQueue(const WaitingQueueOptions& options, const cache::PrefixCache& cache,
                           FairShare& fair)
    : options_(options),
      cache_(cache),
      fair_(fair),
      order_({.policy = options.choice.policy,
              .by_priority = options.choice.by_priority,
              .max_wait_seconds = options.scheduling.cache_aware_max_wait_seconds,
              .seed = options.random_seed}),
      last_id_(std::numeric_limits<int64_t>::min()) {}

// ---- Arrival ----

Status WaitingQueue::check_call(std::span<const Sequence* const> sequences,
                                int64_t num_batch_slots) const {
  std::unordered_map<std::string_view, int64_t> count;
  for (const Sequence* sequence : sequences) {
    const TenantTerms& terms = sequence->request.tenant_terms;
    const int64_t most = fair_.max_at_once(num_batch_slots, terms);
    if (std::ssize(sequences) <= most) continue;
    if (++count[sequence->request.tenant] <= most) continue;
    return request::refuse(
        request::kAnswersField,
        fmt::format("{} answers at once are more than are taken of one tenant: {}, of which {} may "
                    "wait (tenant_max_queued); send fewer in one call",
                    sequences.size(), most,
                    terms.max_queued.value_or(options_.scheduling.tenant_max_queued)));
  }
  return {};
}

Status WaitingQueue::submit_all(std::span<Sequence* const> sequences, const RunningSet& running) {
  const int64_t open_slots = num_open_slots(running);
  HEDDLE_RETURN_IF_ERROR(check_arrivals(sequences));
  HEDDLE_RETURN_IF_ERROR(check_tenants(sequences, open_slots));
  HEDDLE_RETURN_IF_ERROR(check_queue(open_slots));

  const size_t first_displaced = displaced_.size();
  for (const int32_t index : chosen_) {
    displaced_.push_back(
        {.sequence = waiting_[static_cast<size_t>(index)].sequence, .reason = displaced_error()});
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    const int32_t tenant = fair_.tenant(sequence.request.tenant);
    fair_.set_terms(tenant, sequence.request.tenant_terms);
    waiting_.push_back({.sequence = &sequence,
                        .tenant = tenant,
                        .urgency = arriving_requests_[i].urgency,
                        .prefilled_at_arrival = running.prefilled_tokens()});
    fair_.arrive(tenant);
    sequence.status = SequenceStatus::kWaiting;
    last_id_ = sequence.id;
  }
  for (size_t i = first_displaced; i < displaced_.size(); ++i) remove(*displaced_[i].sequence);
  return {};
}

// Checks the fields of the sequences and fills arriving_requests_.
Status WaitingQueue::check_arrivals(std::span<Sequence* const> sequences) {
  const SchedulingOptions& scheduling = options_.scheduling;
  const PriorityRules priorities{.enabled = options_.choice.by_priority,
                                 .low_values_first = scheduling.low_values_first,
                                 .default_priority = scheduling.default_priority};
  int64_t last_id = last_id_;
  arriving_requests_.clear();
  for (const Sequence* sequence : sequences) {
    HEDDLE_CHECK(sequence->status == SequenceStatus::kNew);
    HEDDLE_CHECK_LT(last_id, sequence->id);
    last_id = sequence->id;
    if (sequence->request.priority && !options_.choice.by_priority &&
        scheduling.reject_priority_when_disabled) {
      return request::refuse(request::kPriorityField,
                             "the request has a priority, but priority scheduling is off");
    }
    arriving_requests_.push_back({.urgency = urgency_of(sequence->request.priority, priorities),
                                  .arrival = sequence->id,
                                  .tokens = sequence->num_tokens()});
  }
  return {};
}

// Whether every tenant of the call has room in its share of the queue. Looks tenants up by name: a
// tenant that is not known yet gets its number only when a request arrives.
Status WaitingQueue::check_tenants(std::span<Sequence* const> sequences, int64_t num_open_slots) {
  arriving_tenants_.clear();
  for (const Sequence* sequence : sequences) {
    arriving_tenants_.emplace_back(sequence->request.tenant, &sequence->request.tenant_terms);
  }
  const auto name = [](const auto& tenant) { return tenant.first; };
  std::ranges::sort(arriving_tenants_, {}, name);
  for (auto first = arriving_tenants_.begin(); first != arriving_tenants_.end();) {
    const auto end =
        std::ranges::upper_bound(first, arriving_tenants_.end(), first->first, {}, name);
    HEDDLE_RETURN_IF_ERROR(
        fair_.check_queue(first->first, end - first, num_open_slots, *first->second));
    first = end;
  }
  return {};
}

// Fills chosen_ with the waiting requests that arriving_requests_ displace.
Status WaitingQueue::check_queue(int64_t num_open_slots) {
  queued_requests_.clear();
  for (const WaitingSequence& other : waiting_) {
    queued_requests_.push_back({.urgency = other.urgency,
                                .arrival = other.sequence->id,
                                .tokens = other.sequence->num_tokens() - other.matched_tokens,
                                .returned = other.returned});
  }
  QueueLimits limits{.max_requests = options_.max_queued,
                     .num_open_slots = num_open_slots,
                     .by_priority = options_.choice.by_priority};
  if (options_.scheduling.max_queued_tokens > 0) {
    limits.max_tokens = options_.scheduling.max_queued_tokens;
  }
  return enter_queue(arriving_requests_, queued_requests_, limits, chosen_);
}

// A second call changes nothing: sequences that arrived after the first stay deferred.
void WaitingQueue::defer_arrivals(bool defer) {
  if (!defer) {
    deferred_after_.reset();
  } else if (!deferred_after_) {
    deferred_after_ = last_id_;
  }
}

int64_t WaitingQueue::num_deferred_arrivals() const {
  if (!deferred_after_) return 0;
  return std::ranges::count_if(
      waiting_, [this](const WaitingSequence& waiting) { return is_deferred(waiting); });
}

int64_t WaitingQueue::num_open_slots(const RunningSet& running) const {
  if (paused_ || deferred_after_) return 0;
  const bool short_of_room =
      std::any_of(waiting_.begin(), waiting_.end(),
                  [](const WaitingSequence& waiting) { return waiting.short_of_room; });
  return short_of_room ? 0 : running.num_free_slots();
}

void WaitingQueue::take_back(const WaitingSequence& returned) { waiting_.push_back(returned); }

void WaitingQueue::remove(const Sequence& sequence) {
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(),
                   [&](const WaitingSequence& waiting) { return waiting.sequence == &sequence; });
  HEDDLE_CHECK(found != waiting_.end());
  found->sequence->status = SequenceStatus::kFinished;
  fair_.leave_waiting(found->tenant, found->returned);
  waiting_.erase(found);
}

void WaitingQueue::remove_at(size_t index) {
  waiting_.erase(waiting_.begin() + static_cast<int64_t>(index));
}

void WaitingQueue::take_displaced(std::vector<Dropped>& dropped) {
  dropped.insert(dropped.end(), displaced_.begin(), displaced_.end());
  displaced_.clear();
}

void WaitingQueue::forget_displaced(const Sequence& sequence) {
  std::erase_if(displaced_, [&](const Dropped& dropped) { return dropped.sequence == &sequence; });
}

// ---- Order ----

void WaitingQueue::order(const RunningSet& running, const ServiceRates& rates, double now_seconds) {
  const QueuePolicy policy = options_.choice.policy;
  const bool reads = reads_matches(policy, std::ssize(waiting_));
  if (reads) match_waiting();
  const int64_t top = top_urgency(running);
  entries_.clear();
  for (size_t i = 0; i < waiting_.size(); ++i) {
    if (is_deferred(waiting_[i])) continue;
    entries_.push_back(entry_of(i, running, rates, now_seconds, top));
  }
  if (reads) {
    leaders_.begin();
    leaders_.mark(entries_);
  }
  const bool routing_key_runs = policy == QueuePolicy::kRoutingKey &&
                                std::any_of(running.sequences().begin(), running.sequences().end(),
                                            [](const RunningSequence* other) {
                                              return !other->sequence->request.routing_key.empty();
                                            });
  const TreeShape shape(cache_.tree());
  order_.order(
      entries_,
      {.pass = pass_, .routing_key_runs = routing_key_runs, .shape = &shape, .fair = &fair_});
  size_t place = 0;
  const bool stays = std::ranges::all_of(entries_, [&place](const QueueEntry& entry) {
    return static_cast<size_t>(entry.index) == place++;
  });
  if (stays) return;  // the order is unchanged, which is usual with fcfs
  sorted_.clear();
  for (const QueueEntry& entry : entries_) {
    sorted_.push_back(waiting_[static_cast<size_t>(entry.index)]);
  }
  for (const WaitingSequence& waiting : waiting_) {
    if (is_deferred(waiting)) sorted_.push_back(waiting);
  }
  std::swap(waiting_, sorted_);
}

// Matches the waiting sequences whose match may be out of date because the prefix tree has grown.
// For dfs-weight matches all of them, because the nodes of old matches may have been evicted.
void WaitingQueue::match_waiting() {
  const uint64_t epoch = cache_.tree().epoch() + 1;
  const bool needs_nodes = options_.choice.policy == QueuePolicy::kDfsWeight;
  int64_t count = 0;
  for (WaitingSequence& waiting : waiting_) {
    waiting.match_node = nullptr;
    if (count == kMaxMatchedWaiting || (!needs_nodes && waiting.match_epoch == epoch)) continue;
    ++count;
    const cache::PrefixMatch match = cache_.match(*waiting.sequence);
    waiting.match_epoch = epoch;
    waiting.matched_tokens = match.usable_tokens;
    if (needs_nodes) waiting.match_node = match.kv_node;
  }
}

int64_t WaitingQueue::top_urgency(const RunningSet& running) const {
  int64_t top = std::numeric_limits<int64_t>::min();
  if (!options_.choice.by_priority) return top;
  for (const WaitingSequence& waiting : waiting_) top = std::max(top, waiting.urgency);
  for (const RunningSequence* other : running.sequences()) top = std::max(top, other->urgency);
  return top;
}

QueueEntry WaitingQueue::entry_of(size_t index, const RunningSet& running,
                                  const ServiceRates& rates, double now_seconds,
                                  int64_t top_urgency) const {
  const WaitingSequence& waiting = waiting_[index];
  const Sequence& sequence = *waiting.sequence;
  const Request& request = sequence.request;
  QueueEntry entry;
  entry.index = static_cast<int32_t>(index);
  entry.sequence = waiting.sequence;
  entry.arrival = sequence.id;
  entry.queued_seconds = now_seconds - sequence.timings.submit_seconds;
  entry.returned = waiting.returned;
  entry.base_urgency = waiting.urgency;
  entry.urgency = aged_urgency(waiting.urgency, entry.queued_seconds,
                               options_.scheduling.aging_seconds, top_urgency);
  entry.max_new_tokens = request.stop.max_new_tokens;
  entry.matched_tokens = waiting.matched_tokens;
  entry.uncached_tokens = sequence.num_tokens() - waiting.matched_tokens;
  entry.match_node = waiting.match_node;
  entry.engine_prefilled = running.prefilled_tokens() - waiting.prefilled_at_arrival;
  entry.tenant = waiting.tenant;
  if (options_.choice.policy == QueuePolicy::kRoutingKey) {
    entry.routing_key = request.routing_key;
    for (const RunningSequence* other : running.sequences()) {
      const std::string& key = other->sequence->request.routing_key;
      entry.routing_running += !key.empty() && key == request.routing_key ? 1 : 0;
    }
  }
  if (options_.choice.policy == QueuePolicy::kFair) {
    entry.slack_seconds =
        slack_seconds({.ttft_slo_seconds = request.ttft_slo_seconds,
                       .deadline_seconds = request.deadline_seconds,
                       .elapsed_seconds = request.waited_seconds + entry.queued_seconds,
                       .uncached_tokens = entry.uncached_tokens,
                       .has_first_token = sequence.timings.first_token_seconds >= 0},
                      rates);
  }
  return entry;
}

void WaitingQueue::expect_no_room() {
  for (WaitingSequence& waiting : waiting_) waiting.short_of_room = true;
}

void WaitingQueue::check_invariants() const {
  for (const WaitingSequence& waiting : waiting_) {
    HEDDLE_CHECK(waiting.sequence->status == SequenceStatus::kWaiting);
    HEDDLE_CHECK(waiting.sequence->pages.empty() && waiting.sequence->state_slot == 0);
    HEDDLE_CHECK_EQ(waiting.sequence->num_computed, 0);
    HEDDLE_CHECK_EQ(waiting.sequence->batch_slot, -1);
  }
}

}  // namespace heddle::scheduler
