// SPDX-License-Identifier: Apache-2.0
// PrefixCache: allocates the pages and state slots of sequences, lets them resume from tokens that
// earlier sequences computed, and keeps their computed tokens for later sequences.
//
// A snapshot is published only when it is confirmed. A plan names the states to save and a new slot
// for each. The snapshot enters the tree after the output of its step has been processed, with the
// label that was decided when the step was planned. So every state in the tree was computed, and no
// token after the end of a text enters the tree.
//
//   match() -> admit() -> [plan_prefill() | plan_decode(), step, confirm()]* -> release()
//
// A running sequence has a working slot that steps advance in place; pages, of which the first may
// belong to the tree (read only) and the others are its own; and slots of snapshots that steps in
// flight will fill (cached_sequence.h).
//
// When a sequence ends, its last state is kept. If snapshots use the state slots, its working slot
// moves to the tree. If they have a format and slots of their own, the next plan copies the state
// at its head (MoveKind::kSave). The snapshot is published and the working slot freed before that
// copy: any plan that reads or overwrites one of the two runs later.
//
// When memory is short, first snapshots are skipped, then unlocked data is evicted, then admission
// fails as a whole and the sequence waits. Nothing aborts.
//
// It combines CachePools (ids and memory), PrefixTree (cached data), RoomMaker (evictions) and the
// pure rules of resume_plan.h and snapshot_policy.h.
//
// Threading:  confined to the engine thread.
// Invariants: a sequence is released only when no step in flight uses it (the caller counts them);
//             every page is free, the tree's, or exactly one sequence's; likewise slots.
// Cost:       match and publish O(tokens) comparisons, loss O(tokens / 64) table lookups, all else
//             O(pages touched).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/cache_options.h"
#include "cache/cache_pools.h"
#include "cache/cached_sequence.h"
#include "cache/ownership_check.h"
#include "cache/prefix_tree.h"
#include "cache/resume_plan.h"
#include "cache/room_maker.h"
#include "cache/snapshot_policy.h"
#include "core/clock.h"
#include "request/batch_plan.h"
#include "request/sequence.h"

namespace heddle::cache {

struct PrefixCacheStats {
  int64_t pages_used = 0;        // pages of running sequences and of the tree
  int64_t pages_cached = 0;      // pages of the tree that no lock protects
  int64_t pages_locked = 0;      // pages of the tree with a lock: running sequences share them
  int64_t state_slots_used = 0;  // state slots of running sequences and of snapshots
  int64_t state_slots_cached = 0;
  int64_t state_slots_locked = 0;
  // Pages of the tables with a window; `pages_used` and the other fields above are those of table
  // 0.
  int64_t windows_used = 0;     // pages of running sequences and of the tree
  int64_t windows_cached = 0;   // pages of the tree that no sequence pins
  int64_t windows_evicted = 0;  // since the start of the engine, like the fields below
  int64_t evicted_tokens = 0;
  int64_t evicted_states = 0;
  double eviction_seconds = 0;  // total duration of evictions
  int64_t published_states = 0;
  int64_t skipped_snapshots = 0;  // snapshots skipped because no slot was free
};

class PrefixCache {
 public:
  // `clock` measures the time of evictions and outlives the cache; null: no time is measured.
  explicit PrefixCache(const PrefixCacheOptions& options, const Clock* clock = nullptr);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Where the sequence could resume now. An empty match if the cache is disabled.
  [[nodiscard]] PrefixMatch match(const request::Sequence& sequence) const;

  // resume_tokens() returns how many tokens the sequence reuses with this match, pages_to_own() how
  // many pages it would have to own.
  [[nodiscard]] int64_t resume_tokens(const request::Sequence& sequence,
                                      const PrefixMatch& match) const {
    return plan_resume(options_, sequence, match).start;
  }

  [[nodiscard]] int64_t pages_to_own(const request::Sequence& sequence,
                                     const PrefixMatch& match) const {
    return plan_resume(options_, sequence, match).own_pages;
  }

  // How many tokens the sequence computes again with this match, by cause.
  [[nodiscard]] CacheLoss loss(const request::Sequence& sequence, const PrefixMatch& match) const;

  // Allocates everything the sequence needs to run over all of its tokens and leaves `headroom`
  // pages available. Fills in pages, state_slot, num_computed and `cached`. If there is too little
  // it returns false and changes nothing.
  [[nodiscard]] bool admit(request::Sequence& sequence, const PrefixMatch& match, int64_t headroom,
                           CachedSequence& cached);

  // Allocates pages for `num_tokens` tokens. If there are too few it returns false and allocates
  // none.
  [[nodiscard]] bool grow(request::Sequence& sequence, int64_t num_tokens);

  // grow() for every table with a window. Fails only while a step of the sequence's prompt is in
  // flight.
  [[nodiscard]] bool grow_windows(CachedSequence& cached, int64_t num_tokens);

  // How many tokens after the first `num_planned` can get pages in the tables with a window, for an
  // admitted sequence or one admitted with this match. At least one if no step of it is in flight.
  // Unlimited without such tables.
  [[nodiscard]] int64_t window_room(const CachedSequence& cached, int64_t num_planned) const;
  [[nodiscard]] int64_t window_room(const request::Sequence& sequence,
                                    const PrefixMatch& match) const;

  // Frees the sequence's pages that no layer reads any more; returns whether there is more room
  // now. Called when room is short: until then the pages stay, because other sequences may use
  // them.
  [[nodiscard]] bool shrink(const request::Sequence& sequence, CachedSequence& cached);

  // plan_prefill() and plan_decode() complete a planned sequence that computes tokens up to `end`
  // and has its new tokens already. They add the moves before its first step, the rows that are not
  // written again and the states to save. They grow the windows up to `end`, for which there must
  // be room (window_room(), grow_windows(); checked).
  void plan_prefill(const request::Sequence& sequence, CachedSequence& cached, int64_t end,
                    request::PlannedSequence& planned, request::BatchPlan& plan);
  void plan_decode(const request::Sequence& sequence, CachedSequence& cached, int64_t end,
                   request::PlannedSequence& planned, request::BatchPlan& plan);

  // Requests a snapshot at `fork` tokens, where another sequence will part from this one. Does
  // nothing if the sequence is planned that far already.
  void want_snapshot(CachedSequence& cached, int64_t fork, int64_t num_planned) const;

  // Whether a sequence that waits for this one will find at least `enough` tokens in the cache and
  // at most `fork`.
  [[nodiscard]] bool will_publish(const CachedSequence& cached, int64_t enough, int64_t fork,
                                  int64_t num_planned) const;

  // Publishes the snapshots taken in the first num_computed tokens, which have been computed.
  void confirm(request::Sequence& sequence, CachedSequence& cached);

  // Frees the slots of snapshots that no step in flight takes any more: those of rejected drafts.
  // No step of the sequence may be in flight, and confirm() must have been called.
  void drop_pending(CachedSequence& cached);

  enum class Keep {
    kEnd,        // all computed tokens are kept for other sequences, exactly to the end
    kPublished,  // nothing is kept beyond what was published already
  };

  // Adds the moves that do not belong to one sequence to a plan that will be executed: memory
  // returns to the system, last states of ended sequences are saved. Until the call they wait.
  void plan_head(request::BatchPlan& plan) { pools_.plan_head(plan); }

  // Runs the evictions that planning postponed. Called while a step is in flight.
  void evict_owed() { room_.evict_owed(); }

  // Publishes the sequence's computed tokens if `keep` says so, and frees everything else that it
  // holds. No step in flight may use the sequence.
  void release(request::Sequence& sequence, CachedSequence& cached, Keep keep);

  [[nodiscard]] int64_t available_pages() const { return room_.available_pages(); }

  [[nodiscard]] int64_t available_states() const { return room_.available_states(); }

  [[nodiscard]] const PrefixCacheOptions& options() const { return options_; }

  [[nodiscard]] const PrefixTree& tree() const { return tree_; }

  [[nodiscard]] PrefixCacheStats stats() const;

  // Drops all cached data that no sequence uses.
  void clear() { tree_.clear(); }

  // Checks the invariants I1 to I14 (prefix_tree.h) and aborts if one is broken. `running` are all
  // sequences that have been admitted and not released.
  void check_invariants(std::span<const AdmittedSequence> running) const;

 private:
  void publish_end(request::Sequence& sequence, CachedSequence& cached);
  PrefixNode* publish(request::Sequence& sequence, CachedSequence& cached,
                      const CachedSequence::Pending& taken);
  void plan_snapshot(CachedSequence& cached, const SnapshotRequest& wanted, bool decode,
                     request::BatchPlan& plan);
  void begin_windows(const request::Sequence& sequence, CachedSequence& cached,
                     const ResumePlan& resume);
  void slide_windows(const request::Sequence& sequence, CachedSequence& cached);
  void take_windows(CachedSequence& cached, int64_t end, int64_t context_tokens);
  void free_own_pages(const request::Sequence& sequence, int64_t begin, int64_t end);

  [[nodiscard]] int64_t whole_pages(int64_t num_tokens) const {
    return num_tokens - num_tokens % options_.pools.page_size;
  }

  PrefixCacheOptions options_;
  CachePools pools_;
  PrefixTree tree_;
  RoomMaker room_;
  std::vector<SnapshotRequest> snapshot_requests_;  // scratch of plan_prefill()
  std::vector<PageRef> found_;                      // scratch of begin_windows()
  int64_t published_states_ = 0;
  int64_t skipped_snapshots_ = 0;
};

}  // namespace heddle::cache
