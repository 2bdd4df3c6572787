// SPDX-License-Identifier: Apache-2.0
// PrefixCache: pages, state slots and the prefix tree as one thing that sequences hold and give
// back.
//
// Publish on confirm: a step is told which states to save into which fresh slots; only when the
// step's output has been booked does a snapshot enter the tree, with the label that was decided
// when the step was planned. So nothing can be found that was not computed, and nothing after the
// end of a text gets in.
//
//   match() -> admit() -> [plan_prefill() | plan_decode(), step, confirm()]* -> release()
//
// What a running sequence holds: a working slot that steps advance in place; pages, the first ones
// maybe the tree's (read only), the others its own; slots of states that steps in flight will fill.
//
// Snapshots share the slots of the running sequences: then the end of a sequence is kept by
// giving its working slot to the tree. Or they have another format and slots of their own: then the
// end is copied at the head of the next plan (save_snapshots). It can be published and the
// working slot given away before that, because whatever reads or overwrites either of the two comes
// later in that plan or in a later one.
//
// Degradation, in this order, when something is short: no snapshot; evict what nobody holds;
// admission fails as a whole, and the sequence waits. Nothing aborts.
//
// Threading:  confined to the engine thread.
// Invariants: a sequence gives its resources back only when no step in flight uses them (checked by
//             the caller, who counts them); every page is free, the tree's, or exactly one
//             sequence's; likewise slots.
// Cost:       match and publish O(tokens) compares, loss O(tokens / 64) looks into a table,
//             everything else O(pages touched).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/memory_budget.h"
#include "cache/page_allocator.h"
#include "cache/pool_sizes.h"
#include "cache/prefix_tree.h"
#include "cache/snapshot_policy.h"
#include "cache/state_allocator.h"
#include "request/batch_plan.h"
#include "request/prefill_flops.h"
#include "request/sequence.h"

namespace heddle::cache {

struct PrefixCacheOptions {
  PoolSizes pools;  // with states, every running sequence has a working slot

  bool enabled = true;  // false: nothing is kept beyond the sequence that computed it
  SnapshotPolicy policy = SnapshotPolicy::kMulti;
  int64_t grid = 64;
  int64_t decode_interval = 256;
  EvictionPolicy eviction = EvictionPolicy::kFlops;
  request::PrefillFlops flops;  // of the served model
};

// What a running sequence holds beside its pages and its working slot. Empty while it waits.
struct CachedSequence {
  struct Pending {
    int64_t tokens = 0;
    int32_t slot = 0;
    bool keeps_hidden = false;
    bool decode = false;
    bool middle = false;  // nobody asked for it: it is there in case somebody forks
  };

  PrefixLock path;                    // KV of the deepest node the sequence shares or published
  PrefixLock source;                  // the state it starts from, until its first step is done
  int64_t shared_tokens = 0;          // pages of these are the tree's
  int64_t kv_tokens = 0;              // rows of these exist
  int64_t dead_pages = 0;             // the first ones, given up: no layer reads them any more
  std::vector<Pending> pending;       // ascending; steps in flight fill them
  std::vector<int64_t> forks;         // where others part from this sequence
  PrefixNode* decode_node = nullptr;  // the last decode snapshot
  bool keeps_to_itself = false;       // nothing enters the tree before the end
  bool publishes_prefix = false;      // models without state: a prefill step is in flight

  // Snapshots that the steps in flight take; two steps at most, so they take turns.
  std::array<std::vector<request::StateSnapshot>, 2> snapshots;
  size_t turn = 0;

  uint64_t began = 0;  // on the tree's clock

  // What the first step does at its head.
  bool starts = false;
  int32_t copy_state_from = 0;
  request::IdCopy copy_page;
  int32_t hidden_slot = 0;
};

struct PrefixCacheStats {
  int64_t pages_used = 0;        // by sequences and tree
  int64_t pages_cached = 0;      // by the tree, and held by nobody
  int64_t pages_locked = 0;      // the tree's, held by sequences that share them
  int64_t state_slots_used = 0;  // snapshots included
  int64_t state_slots_cached = 0;
  int64_t state_slots_locked = 0;
  int64_t evicted_tokens = 0;  // since the start, as everything below
  int64_t evicted_states = 0;
  int64_t published_states = 0;
  int64_t skipped_snapshots = 0;  // for want of a slot
};

class PrefixCache {
 public:
  explicit PrefixCache(const PrefixCacheOptions& options);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Where the sequence could resume now. Empty with the cache disabled.
  [[nodiscard]] PrefixMatch match(const request::Sequence& sequence) const;

  // Tokens the sequence has in the cache with this match, and pages it would have to own.
  [[nodiscard]] int64_t resume_tokens(const request::Sequence& sequence,
                                      const PrefixMatch& match) const;
  [[nodiscard]] int64_t pages_to_own(const request::Sequence& sequence,
                                     const PrefixMatch& match) const;

  // What the sequence computes again with this match although it was computed before, by cause.
  [[nodiscard]] CacheLoss loss(const request::Sequence& sequence, const PrefixMatch& match) const;

  // Takes everything the sequence needs to run over all of its tokens, or nothing and false. Fills
  // pages, state_slot, num_computed and the cached.
  [[nodiscard]] bool admit(request::Sequence& sequence, const PrefixMatch& match, int64_t headroom,
                           CachedSequence& cached);

  // Pages for `num_tokens` tokens, or nothing and false.
  [[nodiscard]] bool grow(request::Sequence& sequence, int64_t num_tokens);

  // Gives up pages that no layer reads any more. They stay as long as there is room, because what
  // they hold may be of use to others. Returns whether there is more room now.
  [[nodiscard]] bool shrink(const request::Sequence& sequence, CachedSequence& cached);

  // Completes a planned sequence that computes tokens up to `end`, new tokens and pages filled in:
  // what its first step does at its head, rows that are not written again, states to save. The
  // spans live as long as the cached, until two more steps have been planned.
  void plan_prefill(const request::Sequence& sequence, CachedSequence& cached, int64_t end,
                    request::PlannedSequence& planned, request::BatchPlan& plan);
  void plan_decode(const request::Sequence& sequence, CachedSequence& cached, int64_t end,
                   request::PlannedSequence& planned);

  // Asks for a state at `fork` tokens, where another sequence will part from this one. Nothing
  // happens if that is planned already.
  void want_snapshot(CachedSequence& cached, int64_t fork, int64_t num_planned) const;

  // Whether somebody who waits for the sequence will find more: up to `fork` tokens, but at least
  // `enough`.
  [[nodiscard]] bool will_publish(const CachedSequence& cached, int64_t enough, int64_t fork,
                                  int64_t num_planned) const;

  // Books that the sequence has computed num_computed tokens: publishes the snapshots taken up to
  // there.
  void confirm(request::Sequence& sequence, CachedSequence& cached);

  enum class Keep {
    kEnd,        // what the sequence has computed is kept for others, exactly to its end
    kPublished,  // nothing beyond what has been published already
  };

  // Completes a plan that will be carried out with what else its head does: memory goes back to the
  // system, ends of sequences are saved. Without it all that stays for the next plan.
  void plan_head(request::BatchPlan& plan);

  // Gives everything back. No step in flight may use it.
  void release(request::Sequence& sequence, CachedSequence& cached, Keep keep);

  [[nodiscard]] int64_t available_pages() const;   // free and evictable
  [[nodiscard]] int64_t available_states() const;  // likewise; 0 for models without state

  [[nodiscard]] const PrefixCacheOptions& options() const { return options_; }

  [[nodiscard]] const PrefixTree& tree() const { return tree_; }

  [[nodiscard]] PrefixCacheStats stats() const;

  // Gives up what nobody holds.
  void clear() { tree_.clear(); }

  struct Running {
    const request::Sequence* sequence;
    const CachedSequence* cached;
  };

  // Proves that tree and holders together own exactly what is not free, or aborts.
  void check_invariants(std::span<const Running> running) const;

 private:
  [[nodiscard]] bool repeats(const request::Sequence& sequence, const PrefixMatch& match) const;
  [[nodiscard]] int64_t fork_tokens(const request::Sequence& sequence,
                                    const PrefixMatch& match) const;
  [[nodiscard]] int64_t shared_tokens(const request::Sequence& sequence,
                                      const PrefixMatch& match) const;

  // What somebody wants to take.
  struct Need {
    int64_t pages = 0;
    int64_t states = 0;
    int64_t snapshots = 0;
  };

  [[nodiscard]] bool has_own_snapshot_slots() const {
    return options_.pools.has_own_snapshot_slots();
  }

  [[nodiscard]] int64_t bytes_of(const Need& need) const;
  [[nodiscard]] bool has_room(const Need& need) const;
  [[nodiscard]] bool make_room(const Need& need);
  [[nodiscard]] bool make_room_for(const CachedSequence& cached, const SnapshotRequest& wanted);
  [[nodiscard]] int64_t available_bytes() const;
  [[nodiscard]] int64_t free_snapshot_slots() const;
  [[nodiscard]] int64_t bytes_to_fill() const;  // of shared_bytes, before something is evicted
  [[nodiscard]] int64_t max_snapshot_slots() const;
  void take_pages(int64_t count, std::vector<int32_t>& pages);
  [[nodiscard]] int32_t take_state();
  [[nodiscard]] int32_t take_snapshot_slot();
  void publish_end(request::Sequence& sequence, CachedSequence& cached);
  // Lets others find what was computed up to there; takes the slot or frees it.
  PrefixNode* publish(request::Sequence& sequence, CachedSequence& cached,
                      const CachedSequence::Pending& taken);
  void plan_snapshot(CachedSequence& cached, const SnapshotRequest& wanted, bool decode);

  // Tells the budget what became free.
  struct FreedIds : IdPool::FreeObserver {
    FreedIds(MemoryBudget& shared, MemoryKind memory) : budget(shared), kind(memory) {}

    void freed(std::span<const int32_t> ids) override { budget.free(kind, ids); }

    MemoryBudget& budget;
    MemoryKind kind;
  };

  // Besides, saves into those slots are cancelled.
  struct FreedSnapshots final : FreedIds {
    FreedSnapshots(MemoryBudget& shared, std::vector<request::IdCopy>& planned)
        : FreedIds(shared, MemoryKind::kSnapshots), saves(planned) {}

    void freed(std::span<const int32_t> ids) override;

    std::vector<request::IdCopy>& saves;
  };

  PrefixCacheOptions options_;
  MemoryBudget budget_;
  ReleasedIds unused_;                  // to be told with the next plan
  std::vector<request::IdCopy> saves_;  // likewise: working slots, maybe free, to tree's slots
  FreedIds freed_pages_{budget_, MemoryKind::kPages};
  FreedIds freed_states_{budget_, MemoryKind::kStates};
  FreedSnapshots freed_snapshots_{budget_, saves_};
  PageAllocator pages_;
  StateAllocator states_;
  StateAllocator own_snapshot_slots_;  // without slots where snapshots share states_
  StateAllocator& snapshots_;          // one of the two
  PrefixTree tree_;
  std::vector<SnapshotRequest> snapshot_requests_;
  int64_t published_states_ = 0;
  int64_t skipped_snapshots_ = 0;
};

}  // namespace heddle::cache
