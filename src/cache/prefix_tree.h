// SPDX-License-Identifier: Apache-2.0
// PrefixTree: the tokens of earlier sequences, with the KV pages and recurrent states that belong
// to them, so that a sequence that begins alike resumes instead of computing.
//
// A radix tree over token ids. A node is an edge of tokens; its depth is the number of tokens from
// the root to the end of the edge. It owns the KV pages of its edge and, at some nodes only, a
// snapshot of the recurrent state after exactly `depth` tokens. A node without a state keeps its
// KV: it shows where prompts fork and lets others share its rows, but no sequence can resume there.
// With models that have no recurrent state a sequence can resume at every page boundary. A sequence
// that resumes inside a page copies that page before it writes.
//
// The tree joins four parts, each with its own state and contract:
//   RadixTree      edges, pages and path locks (radix_tree.h)
//   NodeStates     states on nodes and their locks (node_states.h)
//   EvictionQueue  the order in which nodes give something up (eviction_queue.h)
//   GhostSet       hashes of prefixes that were evicted (ghost_set.h)
//
// Where page tables have windows (cache_pools.h), a sequence can resume at a point
// only while the pages of the last `window` tokens before it are there; match() looks at each of
// them.
//
// A node without a lock on itself lives until the next call that is not const: evictions remove
// nodes, and a node without state, fork or lock is joined with its only child, which survives.
//
// Matching is const: it splits nothing and refreshes nothing. Splits happen in insert() only.
//
// Ownership: pages and slots given to insert() go from Owner::kRequest to Owner::kTree, and back to
//            free when they are evicted. A lock on a node keeps the KV of its whole path, and its
//            state if the lock asked for it.
// Threading: confined to the engine thread.
// Cost:      match and insert compare O(tokens) ids with SIMD-friendly loops, insert those behind
//            its `begins_at`; it hashes at most 63 tokens for that node and for every one it makes,
//            and visits all nodes of the path; evictions are O(log nodes), without states also
//            O(tokens of the leaf), which are hashed to be remembered.
//
// The invariants of tree and cache, and where each is proven. check_invariants() of the tree calls
// those of its parts; PrefixCache::check_invariants() calls that of the tree.
//   I1   siblings differ in their first token; links and hashes agree      RadixTree
//   I2   a node has exactly the pages of its edge; no edge is empty        RadixTree
//   I3   every page and every slot has one owner                           RadixTree, NodeStates,
//                                                                          check_ownership
//   I4   counters of evictable and locked things agree with the nodes      RadixTree, NodeStates
//   I5   a node has at least the locks of its children and of its state;   RadixTree, NodeStates
//        an idle tree has none
//   I6   a leaf without a state is locked                                  PrefixTree
//   I7   the orders list exactly what can be evicted, by today's keys      EvictionQueue
//   I8   the label of a state is the depth of its node                     NodeStates; match() and
//                                                                          lock() check theirs
//   I9   labels are on the grid, but for exact ends                        check_ownership
//   I10  a sequence of N tokens starts from at most N - 1, or repeats a    check_ownership
//        whole prompt whose hidden vector is kept
//   I11  free, tree's and sequences' ids add up to the pool                IdPool, RadixTree,
//                                                                          NodeStates,
//                                                                          check_ownership
//   I12  tokens found and tokens left to compute add up to N               check_ownership
//   I13  a slot that a step in flight writes is not read, freed or given   check_ownership; the
//        to another sequence                                               label oracle watches
//                                                                          every step
//   I14  ids carry generations, and a node has the id it was given         RadixTree, NodeStates
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/request.h>

#include "cache/cache_options.h"
#include "cache/eviction_queue.h"
#include "cache/ghost_set.h"
#include "cache/node_states.h"
#include "cache/page_allocator.h"
#include "cache/radix_tree.h"
#include "cache/state_allocator.h"
#include "request/prefix_hashes.h"

namespace heddle::cache {

struct PrefixMatch {
  PrefixNode* resume = nullptr;   // node to resume after; null: the root, before any token
  int64_t usable_tokens = 0;      // depth of `resume`
  int64_t known_tokens = 0;       // usable_tokens if no window pages were missing
  PrefixNode* kv_node = nullptr;  // the deepest node with at least one matching token
  int64_t kv_tokens = 0;          // matching tokens, with or without a state
  PrefixNode* exact = nullptr;    // ends where the tokens end and has a state and hidden vector
};

// A lock on a node. Release it with unlock(): check_invariants() of an idle tree reports a lock
// that remains.
struct PrefixLock {
  PrefixNode* node = nullptr;  // null: locks nothing
  bool locks_state = false;
};

struct PrefixInsertion {
  std::span<const TokenId> tokens;
  std::string_view name_space;
  const request::PrefixHashes& hashes;  // of these tokens, or of more or fewer that begin alike,
                                        // and of the namespace (checked)
  std::span<const int32_t> pages;  // page of token t is pages[t / page_size]; those the tree does
                                   // not have yet are taken, if their owner is kRequest
  std::span<const PinnedWindow> windows = {};  // likewise by table with a window, as far as they
                                               // are pinned; empty: none
  int32_t state_slot = 0;                      // label: tokens.size() (checked); 0: no state
  bool keeps_hidden = false;                   // the slot has a hidden vector as well
  bool middle = false;                         // a snapshot in case another sequence forks there
  // A locked node whose path is a prefix of these tokens (checked by hash), where the search
  // begins; null: the root.
  PrefixNode* begins_at = nullptr;
};

struct PrefixInserted {
  PrefixNode* node = nullptr;  // ends where the tokens end; null for no tokens
  int64_t known_tokens = 0;    // were in the tree before
  // False: the node had a state, and the caller still owns its slot. A state with a hidden vector
  // replaces one without that is not locked.
  bool state_taken = false;
};

struct PrefixTreeStats {
  int64_t num_nodes = 0;   // without the root
  int64_t num_tokens = 0;  // sum of edge lengths
  int64_t pages = 0;       // owned; the next field is a subset
  int64_t evictable_pages = 0;
  int64_t states = 0;
  int64_t evictable_states = 0;
  int64_t middle_states = 0;
  int64_t evicted_tokens = 0;  // since the start
  int64_t evicted_states = 0;
};

class PrefixTree {
 public:
  // The allocators outlive the tree.
  PrefixTree(const PrefixTreeOptions& options, PageAllocator& pages, std::span<WindowPages> windows,
             StateAllocator& states);
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Resuming is possible up to `max_usable` tokens. Trees of different namespaces have nothing in
  // common.
  [[nodiscard]] PrefixMatch match(std::span<const TokenId> tokens, std::string_view name_space,
                                  int64_t max_usable) const;

  // How deep tokens with this match could resume if nothing had been evicted; at most `max_usable`.
  // Evicted points of resumption are remembered while the pools are filled a few times: what was
  // evicted before that does not count.
  // `hashes` are those of the tokens and the namespace, all whole blocks of them (checked).
  // Cost: O(blocks beyond the match), a look into a table each.
  [[nodiscard]] int64_t usable_without_eviction(std::span<const TokenId> tokens,
                                                const request::PrefixHashes& hashes,
                                                const PrefixMatch& match, int64_t max_usable) const;

  [[nodiscard]] int64_t depth(const PrefixNode* node) const;       // 0 for null
  [[nodiscard]] int32_t state_slot(const PrefixNode* node) const;  // 0: none

  // The node of the path to `node` on whose edge token num_tokens - 1 lies; null for no tokens.
  [[nodiscard]] PrefixNode* covering(PrefixNode* node, int64_t num_tokens) const;

  // The node above; null right below the root.
  [[nodiscard]] const PrefixNode* parent(const PrefixNode* node) const;

  // Appends the pages of the first `num_tokens` tokens of the path to `node`, which end on its edge
  // (checked).
  void append_pages(const PrefixNode* node, int64_t num_tokens, std::vector<int32_t>& pages) const {
    radix_.append_pages(node, num_tokens, pages);
  }

  // As RadixTree::append_window().
  void append_window(const PrefixNode* node, int64_t num_tokens, size_t window,
                     std::vector<PageRef>& pages) const {
    radix_.append_window(node, num_tokens, window, pages);
  }

  // With `state`, the node's state is kept as well if it has one. A null node gives an empty lock.
  [[nodiscard]] PrefixLock lock(PrefixNode* node, bool state);
  void release_state(PrefixLock& lock);  // keeps the KV
  void unlock(PrefixLock& lock);         // empties `lock`

  // The lock, on the KV alone, is on `node` instead. Cost: O(nodes between the two) where the one
  // that was locked lies above.
  void move(PrefixLock& lock, PrefixNode* node);

  // A sequence resumes here: the path's KV and this node's state are the most recently used.
  void touch(PrefixNode* node);

  PrefixInserted insert(const PrefixInsertion& insertion);

  // Drops the node's state if it is not locked, no sequence resumed at it and nothing forks there
  // (a decode snapshot that a later one replaces). Returns whether it did. Call it before unlock(),
  // after which the node may be deleted.
  bool drop_unused_state(PrefixNode* node);

  // Free at least `count` unlocked pages or states, if there are so many; return the number freed,
  // which may be more or fewer. A state without children is freed with its node's KV.
  int64_t evict_pages(int64_t count);
  int64_t evict_states(int64_t count);

  // Makes room for a middle state at `to` tokens with the next one above at `from`, of a sequence
  // that began at tick `since`. As long as middle states are less than a quarter of all, one of
  // another kind is evicted; beyond that the oldest of those that earlier sequences left, and last
  // one that is worth less. Returns whether a state was evicted.
  bool evict_state_for_middle(int64_t from, int64_t to, uint64_t since);

  // Whether it would evict one behind as many calls as are `owed`. False also where that depends on
  // what these leave. Cost: O(owed).
  [[nodiscard]] bool can_evict_for_middle(int64_t from, int64_t to, uint64_t since,
                                          int64_t owed) const {
    return victim_for_middle(from, to, since, owed) != nullptr;
  }

  // Evicts whatever is worth least, pages or states, until `bytes` are free; returns how many.
  int64_t evict_bytes(int64_t bytes);

  // Evicts everything that is not locked and resets the record of evictions.
  void clear();

  // Counts insertions and uses.
  [[nodiscard]] uint64_t clock() const { return clock_; }

  // Grows whenever a match may have become longer.
  [[nodiscard]] uint64_t epoch() const { return epoch_; }

  [[nodiscard]] PrefixTreeStats stats() const;

  // The nodes, for readers (RadixTree::for_each_node).
  [[nodiscard]] const RadixTree& nodes() const { return radix_; }

  // One line per node, children below their parent in order of their first token:
  //   [0,192)@192
  //     [192,768)
  // Nodes of a namespace other than the empty one follow a line with its name.
  // An @ says that a state is there and what its label is.
  [[nodiscard]] std::string to_string() const;

  // Proves the invariants or aborts. `idle`: no lock may be left.
  void check_invariants(bool idle = false) const;

 private:
  PrefixNode& split(PrefixNode& node, int64_t length, const request::PrefixHash& hash);
  PrefixNode& add_leaf(PrefixNode& parent, const PrefixInsertion& insertion,
                       const request::PrefixHash& hash);
  bool attach_state(PrefixNode& node, const PrefixInsertion& insertion);

  void remove_leaf(PrefixNode& leaf);
  void evict_leaf(PrefixNode& leaf);
  void drop_state(PrefixNode& node);
  void evict_state(PrefixNode& node);
  [[nodiscard]] PrefixNode* victim_for_middle(int64_t from, int64_t to, uint64_t since,
                                              int64_t owed) const;
  [[nodiscard]] bool tidy(PrefixNode& node);
  void tidy_path(PrefixNode* node, bool whole);
  void set_middle(PrefixNode& node, bool middle);
  void remember_boundaries(const PrefixNode& leaf);
  void limit_to_windows(PrefixMatch& match) const;

  PrefixTreeOptions options_;
  PageAllocator& pages_;
  std::span<WindowPages> windows_;
  StateAllocator& slots_;
  RadixTree radix_;
  NodeStates states_;
  EvictionQueue queue_;
  GhostSet ghosts_;
  double half_life_;           // half-life of a use, in ticks of clock_
  int64_t max_middle_states_;  // above this, middle states no longer displace others
  int64_t evicted_tokens_ = 0;
  int64_t evicted_states_ = 0;
  uint64_t clock_ = 0;  // counts insert() and touch()
  uint64_t epoch_ = 0;
};

}  // namespace heddle::cache
