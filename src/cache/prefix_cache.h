// SPDX-License-Identifier: Apache-2.0
// PrefixCache: gives sequences their pages and state slots, lets them resume from what earlier
// sequences computed, and keeps what they computed for later ones.
//
// Publish on confirm: a plan names the states to save and a fresh slot for each. A snapshot enters
// the tree only after the output of its step has been processed, with the label that was decided
// when the step was planned. So no state can be found that was not computed, and no token after the
// end of a text enters the tree.
//
//   match() -> admit() -> [plan_prefill() | plan_decode(), step, confirm()]* -> release()
//
// A running sequence has a working slot that steps advance in place; pages, of which the first may
// be the tree's (read only) and the others are its own; and slots of states that steps in flight
// will fill (cached_sequence.h).
//
// Where snapshots use the state slots, the end of a sequence is kept by moving its working slot to
// the tree. Where they have a format and slots of their own, the end is copied at the head of the
// next plan (MoveKind::kSave). It is published, and the working slot freed, before that: any plan
// that reads or overwrites one of the two runs later.
//
// When something is short, in this order: no snapshot is taken; what is not locked is evicted;
// admission fails as a whole, and the sequence waits. Nothing aborts.
//
// It joins CachePools (ids and memory), PrefixTree (what is kept), RoomMaker (evictions) and the
// pure rules of resume_plan.h and snapshot_policy.h.
//
// Threading:  confined to the engine thread.
// Invariants: a sequence is released only when no step in flight uses it (the caller counts them);
//             every page is free, the tree's, or exactly one sequence's; likewise slots.
// Cost:       match and publish O(tokens) compares, loss O(tokens / 64) looks into a table,
//             everything else O(pages touched).
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
  int64_t pages_used = 0;        // by sequences and tree
  int64_t pages_cached = 0;      // the tree's without a lock
  int64_t pages_locked = 0;      // the tree's with one: sequences share them
  int64_t state_slots_used = 0;  // snapshots included
  int64_t state_slots_cached = 0;
  int64_t state_slots_locked = 0;
  // Pages of the tables with a window; `pages_used` and the others above are those of table 0.
  int64_t windows_used = 0;     // by sequences and tree
  int64_t windows_cached = 0;   // pages of the tree that no sequence pins
  int64_t windows_evicted = 0;  // since the start, like the fields below
  int64_t evicted_tokens = 0;
  int64_t evicted_states = 0;
  double eviction_seconds = 0;  // duration of evictions
  int64_t published_states = 0;
  int64_t skipped_snapshots = 0;  // for want of a slot
};

class PrefixCache {
 public:
  // The clock, which times evictions, outlives the cache; null: they take no time.
  explicit PrefixCache(const PrefixCacheOptions& options, const Clock* clock = nullptr);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Where the sequence could resume now. Empty with the cache disabled.
  [[nodiscard]] PrefixMatch match(const request::Sequence& sequence) const;

  // Tokens the sequence has in the cache with this match, and pages it would have to own.
  [[nodiscard]] int64_t resume_tokens(const request::Sequence& sequence,
                                      const PrefixMatch& match) const {
    return plan_resume(options_, sequence, match).start;
  }

  [[nodiscard]] int64_t pages_to_own(const request::Sequence& sequence,
                                     const PrefixMatch& match) const {
    return plan_resume(options_, sequence, match).own_pages;
  }

  // The tokens that the sequence computes again with this match, by cause.
  [[nodiscard]] CacheLoss loss(const request::Sequence& sequence, const PrefixMatch& match) const;

  // Takes everything the sequence needs to run over all of its tokens, or nothing and false. Leaves
  // `headroom` pages available. Fills pages, state_slot, num_computed and `cached`.
  [[nodiscard]] bool admit(request::Sequence& sequence, const PrefixMatch& match, int64_t headroom,
                           CachedSequence& cached);

  // Pages for `num_tokens` tokens, or nothing and false.
  [[nodiscard]] bool grow(request::Sequence& sequence, int64_t num_tokens);

  // The same for every table with a window. Only false while a step of its prompt is in flight.
  [[nodiscard]] bool grow_windows(CachedSequence& cached, int64_t num_tokens);

  // Tokens after the first `num_planned` for which an admitted sequence, or one admitted with this
  // match, can get pages in the tables with a window: at least one if it has no step in flight.
  // Unlimited without such tables.
  [[nodiscard]] int64_t window_room(const CachedSequence& cached, int64_t num_planned) const;
  [[nodiscard]] int64_t window_room(const request::Sequence& sequence,
                                    const PrefixMatch& match) const;

  // Gives back pages that no layer reads any more. Call it when room is short: until then they
  // stay, because other sequences may use them. Returns whether there is more room now.
  [[nodiscard]] bool shrink(const request::Sequence& sequence, CachedSequence& cached);

  // Completes a planned sequence that computes tokens up to `end`, new tokens filled in: what its
  // first step does at its head, rows that are not written again, states to save. Grows windows up
  // to `end`; there is room (window_room(), grow_windows(); checked).
  void plan_prefill(const request::Sequence& sequence, CachedSequence& cached, int64_t end,
                    request::PlannedSequence& planned, request::BatchPlan& plan);
  void plan_decode(const request::Sequence& sequence, CachedSequence& cached, int64_t end,
                   request::PlannedSequence& planned, request::BatchPlan& plan);

  // Asks for a state at `fork` tokens, where another sequence will part from this one. Does nothing
  // if the sequence is planned that far already.
  void want_snapshot(CachedSequence& cached, int64_t fork, int64_t num_planned) const;

  // Whether a sequence that waits for this one will find more: up to `fork` tokens, but at least
  // `enough`.
  [[nodiscard]] bool will_publish(const CachedSequence& cached, int64_t enough, int64_t fork,
                                  int64_t num_planned) const;

  // The sequence has computed num_computed tokens: publishes the snapshots taken up to there.
  void confirm(request::Sequence& sequence, CachedSequence& cached);

  // Forgets the snapshots that no step in flight will take any more: those of rejected drafts. No
  // step of the sequence is in flight, and confirm() was called.
  void drop_pending(CachedSequence& cached);

  enum class Keep {
    kEnd,        // what the sequence has computed is kept for others, exactly to its end
    kPublished,  // nothing beyond what has been published already
  };

  // Completes a plan that will be carried out with what else its head does: memory goes back to the
  // system, ends of sequences are saved. Until it is called that waits for the next plan.
  void plan_head(request::BatchPlan& plan) { pools_.plan_head(plan); }

  // Evicts what the plan put off. Call it when a step is under way.
  void evict_owed() { room_.evict_owed(); }

  // Returns all that the sequence holds to cache and pools. No step in flight may use it.
  void release(request::Sequence& sequence, CachedSequence& cached, Keep keep);

  [[nodiscard]] int64_t available_pages() const { return room_.available_pages(); }

  [[nodiscard]] int64_t available_states() const { return room_.available_states(); }

  [[nodiscard]] const PrefixCacheOptions& options() const { return options_; }

  [[nodiscard]] const PrefixTree& tree() const { return tree_; }

  [[nodiscard]] PrefixCacheStats stats() const;

  // Drops everything that no sequence uses.
  void clear() { tree_.clear(); }

  // Proves the invariants I1 to I14 (prefix_tree.h), or aborts. `running` are all sequences that
  // have been admitted and not released.
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
  std::vector<SnapshotRequest> snapshot_requests_;  // scratch
  std::vector<PageRef> found_;                      // scratch
  int64_t published_states_ = 0;
  int64_t skipped_snapshots_ = 0;
};

}  // namespace heddle::cache
