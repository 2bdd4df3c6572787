// SPDX-License-Identifier: Apache-2.0
#include "scheduler/in_flight_sharing.h"

#include <algorithm>
#include <limits>

#include "scheduler/queue_policy.h"

namespace heddle::scheduler {

InFlightSharing::InFlightSharing(bool enabled, const cache::PrefixCache& cache)
    : enabled_(enabled && cache.options().enabled),
      cache_(cache),
      followers_({.check_tokens = std::numeric_limits<int64_t>::max()}) {}

void InFlightSharing::mark(std::span<QueueEntry> entries, const RunningSet& running) {
  if (!enabled_) return;
  followers_.begin();
  for (const RunningSequence* leader : running.sequences()) {
    if (leader->can_prefill()) followers_.add_running(*leader->sequence);
  }
  const size_t count = std::min(entries.size(), static_cast<size_t>(kMaxMatchedWaiting));
  followers_.mark(entries.first(count));
  for (RunningSequence* leader : running.sequences()) {
    if (leader->can_prefill()) ask_for_forks(*leader, entries);
  }
}

// The last token at which a snapshot of the leader is of use to the follower: where the two part,
// or earlier, on the grid.
int64_t InFlightSharing::fork_of(const QueueEntry& follower) const {
  const int64_t shared = std::min(follower.shared_tokens, follower.sequence->max_cached_tokens());
  return shared - shared % cache_.options().grid;
}

void InFlightSharing::ask_for_forks(RunningSequence& leader,
                                    std::span<const QueueEntry> entries) const {
  if (leader.cached.publishes_only_at_end) return;
  for (const QueueEntry& entry : entries) {
    if (entry.leader != leader.sequence->id) continue;
    const int64_t fork = fork_of(entry);
    if (fork >= kMinSharedTokens) cache_.want_snapshot(leader.cached, fork, leader.num_planned);
  }
}

bool InFlightSharing::defers(WaitingSequence& waiting, const QueueEntry& entry,
                             const cache::PrefixMatch& match, const RunningSet& running,
                             double now_seconds) {
  if (entry.leader == kNoLeader) return false;
  const auto& candidates = running.sequences();
  const auto found = std::find_if(
      candidates.begin(), candidates.end(),
      [&](const RunningSequence* other) { return other->sequence->id == entry.leader; });
  if (found == candidates.end()) return false;
  const RunningSequence& leader = **found;
  if (!leader.stays() || leader.cached.publishes_only_at_end) return false;
  const bool began = waiting.deferred_since >= 0;
  const bool moved = !began || waiting.leader_tokens != leader.num_planned;
  const double stood_still = moved ? 0 : now_seconds - waiting.leader_moved_at;
  if (!followers_.waits_for_leader(entry, stood_still)) return false;

  // Waiting is worth it only for many more tokens than are cached already, unless the step in
  // flight computes the whole shared prefix.
  const int64_t fork = fork_of(entry);
  const int64_t enough =
      match.usable_tokens + (leader.num_planned < fork ? kMinSharedTokens : cache_.options().grid);
  if (fork < enough || !cache_.will_publish(leader.cached, enough, fork, leader.num_planned)) {
    return false;
  }
  if (moved) {
    waiting.leader_tokens = leader.num_planned;
    waiting.leader_moved_at = now_seconds;
  }
  if (!began) {
    waiting.deferred_since = now_seconds;
    ++num_deferred_;
  }
  return true;
}

}  // namespace heddle::scheduler
