// SPDX-License-Identifier: Apache-2.0
#include "scheduler/in_batch_sharing.h"

#include <algorithm>
#include <compare>
#include <cstddef>

namespace heddle::scheduler {

using request::Sequence;

namespace {

int64_t shared_tokens(const Sequence& a, const Sequence& b) {
  return a.cache_namespace == b.cache_namespace ? a.common_prefix(b) : 0;
}

bool before(const Sequence* a, const Sequence* b) {
  if (const auto order = a->cache_namespace <=> b->cache_namespace; order != 0) {
    return order < 0;
  }
  const auto shared = static_cast<size_t>(a->common_prefix(*b));
  if (shared < std::min(a->tokens.size(), b->tokens.size())) {
    return a->tokens[shared] < b->tokens[shared];
  }
  if (a->tokens.size() != b->tokens.size()) return a->tokens.size() < b->tokens.size();
  return a->id < b->id;
}

}  // namespace

void InBatchSharing::begin() { remembered_.clear(); }

void InBatchSharing::add_running(const Sequence& sequence) {
  if (options_.check_tokens < 0) return;
  const auto position = std::lower_bound(remembered_.begin(), remembered_.end(), &sequence, before);
  remembered_.insert(position, &sequence);
}

// The leader that shares the longest prefix with the sequence; of equal ones the earliest arrival.
InBatchSharing::Share InBatchSharing::find(const Sequence& sequence) const {
  const auto position = std::lower_bound(remembered_.begin(), remembered_.end(), &sequence, before);
  Share share{.position = static_cast<size_t>(position - remembered_.begin())};
  const auto consider = [&](const Sequence* other) {
    const int64_t tokens = shared_tokens(sequence, *other);
    if (tokens < options_.deprioritize_tokens || tokens < share.tokens) return false;
    if (share.leader == nullptr || tokens > share.tokens || other->id < share.leader->id) {
      share.leader = other;
    }
    share.tokens = tokens;
    return true;
  };
  // On each side the shared prefix shrinks with the distance, so the search ends at the first
  // prompt that shares too little.
  auto right = position;
  while (right != remembered_.end() && consider(*right)) ++right;
  auto left = position;
  while (left != remembered_.begin() && consider(*(left - 1))) --left;
  return share;
}

void InBatchSharing::mark(std::span<QueueEntry> entries) {
  for (QueueEntry& entry : entries) {
    entry.deprioritized = false;
    entry.leader = kNoLeader;
    entry.shared_tokens = 0;
    if (options_.check_tokens < 0 || entry.matched_tokens > options_.check_tokens) continue;
    const Share share = find(*entry.sequence);
    if (share.leader != nullptr) {
      entry.deprioritized = true;
      entry.leader = share.leader->id;
      entry.shared_tokens = share.tokens;
    } else {
      remembered_.insert(remembered_.begin() + static_cast<std::ptrdiff_t>(share.position),
                         entry.sequence);
    }
  }
}

bool InBatchSharing::waits_for_leader(const QueueEntry& follower,
                                      double seconds_without_progress) const {
  return follower.leader != kNoLeader && follower.shared_tokens >= options_.defer_tokens &&
         seconds_without_progress < options_.defer_seconds;
}

}  // namespace heddle::scheduler
