// SPDX-License-Identifier: Apache-2.0
#include "scheduler/queue_order.h"

#include <algorithm>
#include <limits>
#include <span>

#include "core/check.h"

namespace heddle::scheduler {

namespace {

// The finalizer of SplitMix64: every bit of the input reaches every bit of the output.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Descending urgency as an ascending key. Unlike a sign, a complement exists for every value.
int64_t most_urgent_first(int64_t urgency) { return ~urgency; }

int64_t new_after_returned(const Waiting& entry) { return entry.returned ? 0 : 1; }

double response_ratio(const Waiting& entry) {
  if (entry.uncached_tokens <= 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(entry.engine_prefilled) / static_cast<double>(entry.uncached_tokens);
}

}  // namespace

void QueueOrder::order(std::vector<Waiting>& entries, const QueueOrderInputs& inputs) {
  const QueuePolicy policy = effective_policy(entries.size(), inputs);
  keys_.resize(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    keys_[i] = key_of(entries[i], policy, inputs);
    keys_[i].index = static_cast<int32_t>(i);
  }
  if (policy == QueuePolicy::kDfsWeight) {
    HEDDLE_CHECK(inputs.shape != nullptr);
    ranks_.resize(entries.size());
    groups_.rank(entries, *inputs.shape, ranks_);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (keys_[i].first != 0) keys_[i].second = ranks_[i];
    }
  }
  sort_by_keys(entries);
  if (policy == QueuePolicy::kFair) {
    HEDDLE_CHECK(inputs.fair != nullptr);
    share_fairly(entries, *inputs.fair);
  }
}

QueuePolicy QueueOrder::effective_policy(size_t num_entries, const QueueOrderInputs& inputs) const {
  const QueuePolicy policy = options_.policy;
  const auto count = static_cast<int64_t>(num_entries);
  if (uses_prefix_cache(policy) && !reads_matches(policy, count)) return QueuePolicy::kFcfs;
  if (policy == QueuePolicy::kRoutingKey && !inputs.routing_key_runs) return QueuePolicy::kFcfs;
  return policy;
}

QueueOrder::Key QueueOrder::key_of(const Waiting& entry, QueuePolicy policy,
                                   const QueueOrderInputs& inputs) const {
  Key key{.arrival = entry.arrival};
  const int64_t urgency = options_.by_priority ? most_urgent_first(entry.urgency) : 0;
  const int64_t started = new_after_returned(entry);
  const int64_t deprioritized = entry.deprioritized ? 1 : 0;
  const bool overdue =
      options_.max_wait_seconds > 0 && entry.queued_seconds > options_.max_wait_seconds;
  switch (policy) {
    case QueuePolicy::kFcfs:
    case QueuePolicy::kFair:
      key.first = urgency;
      key.second = started;
      break;
    case QueuePolicy::kLof:
      key.first = urgency;
      key.second = started;
      key.third = -entry.max_new_tokens;
      break;
    case QueuePolicy::kLpm:
      if (overdue) break;
      key.first = 1 + started;
      key.second = deprioritized;
      key.third = entry.deprioritized ? 0 : -entry.matched_tokens;
      break;
    case QueuePolicy::kDfsWeight:
      if (overdue) break;
      key.first = 1 + started;
      break;
    case QueuePolicy::kRandom:
      key.first = started;
      key.second = static_cast<int64_t>(
          mix(mix(mix(options_.seed) + inputs.pass) + static_cast<uint64_t>(entry.arrival)));
      break;
    case QueuePolicy::kRoutingKey:
      key.first = started;
      key.second = entry.routing_running > 0 ? 0 : 1;
      key.third = -entry.routing_running;
      key.text = entry.routing_key;
      break;
    case QueuePolicy::kHrrn:
      key.first = started;
      key.second = deprioritized;
      key.fourth = entry.deprioritized ? 0 : -response_ratio(entry);
      break;
    case QueuePolicy::kShortestPrefillFirst:
      key.first = started;
      key.second = deprioritized;
      key.third = std::max<int64_t>(1, entry.uncached_tokens);
      break;
  }
  return key;
}

bool QueueOrder::before(const Key& a, const Key& b) {
  if (a.first != b.first) return a.first < b.first;
  if (a.second != b.second) return a.second < b.second;
  if (a.third != b.third) return a.third < b.third;
  if (a.fourth != b.fourth) return a.fourth < b.fourth;
  if (a.text != b.text) return a.text < b.text;
  return a.arrival < b.arrival;
}

void QueueOrder::sort_by_keys(std::vector<Waiting>& entries) {
  if (std::is_sorted(keys_.begin(), keys_.end(), before)) return;  // usual for fcfs
  std::sort(keys_.begin(), keys_.end(), before);
  sorted_.clear();
  for (const Key& key : keys_) sorted_.push_back(entries[static_cast<size_t>(key.index)]);
  entries.swap(sorted_);
}

// Every run of new entries of equal urgency is one class.
void QueueOrder::share_fairly(std::vector<Waiting>& entries, const FairShare& fair) {
  fair.begin_order(fair_scratch_);
  for (size_t begin = 0; begin < entries.size();) {
    size_t end = begin + 1;
    while (end < entries.size() && keys_[end].first == keys_[begin].first &&
           keys_[end].second == keys_[begin].second) {
      ++end;
    }
    if (!entries[begin].returned) {
      fair.order(std::span(entries).subspan(begin, end - begin), fair_scratch_);
    }
    begin = end;
  }
}

}  // namespace heddle::scheduler
