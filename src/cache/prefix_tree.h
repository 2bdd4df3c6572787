// SPDX-License-Identifier: Apache-2.0
// PrefixTree: the tokens of earlier sequences, with the KV pages and recurrent states that belong
// to them, so that a sequence that begins alike resumes instead of computing.
//
// A radix tree over token ids. A node is an edge of tokens; its depth is the number of tokens from
// the root to the end of the edge. It owns the KV pages of its edge and, maybe, one snapshot
// recurrent state: the state after exactly `depth` tokens. A node without state (a tombstone) keeps
// its KV: it shows where prompts fork and lets others share its rows, but no sequence can resume
// there. With models that have no recurrent state every page boundary can be resumed at.
//
// Edges end anywhere, pages do not: a page that two edges share belongs to the upper one if the
// lower was split off it, while an edge that was added below the middle of a page brings a page of
// its own that repeats the first rows. pages() puts a path's pages together; where both have one,
// the lower edge's counts. A sequence that resumes inside a page copies that page before it writes.
//
// A node without a lock on itself lives until the next call that is not const: evictions remove
// nodes, and a node without state, fork or lock is joined with its only child, which survives.
//
// Matching is const: it splits nothing and refreshes nothing. Splits happen in insert() only.
//
// Ownership: pages and slots given to insert() go from Owner::kRequest to Owner::kTree, and back to
//            free when they are evicted. Locks keep nodes: a lock on a node keeps the KV of its
//            whole path, and its state if asked for.
// Threading: confined to the engine thread.
// Invariants: check_invariants() proves them; in words, I1 to I8 of the contract: edges of siblings
//            differ in their first token, every id has one owner, a state's label is its node's
//            depth, a parent's lock count is at least the sum of its children's, counters agree
//            with the nodes.
// Cost:      match and insert compare O(tokens) ids with SIMD-friendly loops, and insert hashes at
//            most 63 tokens for every node it makes; evictions are O(log nodes), without states
//            also O(tokens of the leaf), which are hashed to be remembered.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/request.h>

#include "cache/eviction_order.h"
#include "cache/eviction_score.h"
#include "cache/ghost_set.h"
#include "cache/page_allocator.h"
#include "cache/prefix_tree_options.h"
#include "cache/state_allocator.h"
#include "request/prefix_hashes.h"

namespace heddle::cache {

struct PrefixNode;  // a stranger to everyone but the tree

struct PrefixMatch {
  PrefixNode* resume = nullptr;   // where to resume; null: at the root, which is before any token
  int64_t usable_tokens = 0;      // depth of `resume`
  PrefixNode* kv_node = nullptr;  // the deepest node of which at least one token agrees
  int64_t kv_tokens = 0;          // how many tokens agree, state or not
  PrefixNode* exact = nullptr;    // ends where the tokens end and keeps state and hidden vector
};

// A hold on a node. Given back with unlock(); not given back it is a leak that check_invariants()
// of an idle tree finds.
struct PrefixLock {
  PrefixNode* node = nullptr;  // null: holds nothing
  bool holds_state = false;
};

struct PrefixInsertion {
  std::span<const TokenId> tokens;
  std::string_view name_space;
  const request::PrefixHashes& hashes;  // of these tokens, or of more or fewer that begin alike,
                                        // and of the namespace (checked)
  std::span<const int32_t> pages;  // page of token t is pages[t / page_size]; those the tree does
                                   // not have yet are taken, if their owner is kRequest
  int32_t state_slot = 0;          // its label is tokens.size() (checked); 0: none
  bool keeps_hidden = false;       // the slot has a hidden vector as well
  bool middle = false;             // taken on the way, in case somebody forks there
};

struct PrefixInserted {
  PrefixNode* node = nullptr;  // ends where the tokens end; null for no tokens
  int64_t known_tokens = 0;    // were in the tree before
  // False: the node had a state, and the caller still owns its slot. A state with a hidden vector
  // takes the place of one without that nobody holds.
  bool state_taken = false;
};

struct PrefixTreeStats {
  int64_t num_nodes = 0;   // without the root
  int64_t num_tokens = 0;  // sum of edge lengths
  int64_t pages = 0;       // owned, and of these
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
  PrefixTree(const PrefixTreeOptions& options, PageAllocator& pages, StateAllocator& states);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Resuming is possible up to `max_usable` tokens. Trees of different namespaces have nothing in
  // common.
  [[nodiscard]] PrefixMatch match(std::span<const TokenId> tokens, std::string_view name_space,
                                  int64_t max_usable) const;

  // How deep tokens with this match could resume, had nothing been evicted; at most `max_usable`.
  // Evicted points of resumption are remembered for a few times that the pools are filled: what was
  // given up before that does not count.
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

  // Appends the pages of the first `num_tokens` tokens of the path to `node`, at most its depth
  // beyond its parent (checked): pages_for(num_tokens) of them.
  void append_pages(const PrefixNode* node, int64_t num_tokens, std::vector<int32_t>& pages) const;

  // With `state`, the node's state is kept as well if it has one. A null node gives an empty lock.
  [[nodiscard]] PrefixLock lock(PrefixNode* node, bool state);
  void release_state(PrefixLock& lock);  // keeps the KV
  void unlock(PrefixLock& lock);         // leaves it empty

  // A sequence resumes here: the path's KV and this node's state are the most recently used.
  void touch(PrefixNode* node);

  PrefixInserted insert(const PrefixInsertion& insertion);

  // Gives up the state of a node that nobody holds, nobody ever resumed at, and where nothing forks
  // (a decode snapshot that a later one replaces). Returns whether it did. To be called before
  // the lock on the node is given back: after that the node may be gone.
  bool drop_unused_state(PrefixNode* node);

  // Free at least `count` pages or states if nobody holds them; returns how many were freed, which
  // may be more or fewer. A state below which nothing is left takes its node's KV with it.
  int64_t evict_pages(int64_t count);
  int64_t evict_states(int64_t count);

  // Makes room for a middle state at `to` tokens with the next one above at `from`, of a sequence
  // that began at tick `since`. As long as middle states are less than a quarter of all, one of
  // another kind is given up; beyond that the oldest of those left by earlier sequences, and last
  // one that is worth less. Returns whether something was given up.
  bool evict_state_for_middle(int64_t from, int64_t to, uint64_t since);

  // Counts insertions and uses.
  [[nodiscard]] uint64_t clock() const { return clock_; }

  // Gives up whatever is worth least, pages or states, until `bytes` are free; returns how many.
  int64_t evict_bytes(int64_t bytes);

  // Gives up everything nobody holds, and forgets what was evicted.
  void clear();

  // Grows whenever a match may have become longer.
  [[nodiscard]] uint64_t epoch() const;

  [[nodiscard]] PrefixTreeStats stats() const;

  // One line per node, children below their parent in order of their first token:
  //   [0,192)@192
  //     [192,768)
  // Nodes of a namespace other than the empty one follow a line with its name.
  // An @ says that a state is there and what its label is.
  [[nodiscard]] std::string to_string() const;

  // Proves the invariants or aborts. `idle`: no lock may be held.
  void check_invariants(bool idle = false) const;

 private:
  // Shape (prefix_tree.cpp).
  [[nodiscard]] PrefixNode* find_root(std::string_view name_space) const;
  PrefixNode& make_root(std::string_view name_space);
  PrefixNode& split(PrefixNode& node, int64_t length, const request::PrefixHash& hash);
  PrefixNode& add_leaf(PrefixNode& parent, const PrefixInsertion& insertion,
                       const request::PrefixHash& hash);
  bool attach_state(PrefixNode& node, const PrefixInsertion& insertion);
  void check_state(const PrefixNode& node) const;

  // Giving up (prefix_tree_eviction.cpp).
  void remove_leaf(PrefixNode& leaf);
  void give_up_leaf(PrefixNode& leaf);
  bool settle(PrefixNode& node);
  void settle_path(PrefixNode* node, bool whole);
  void drop_state(PrefixNode& node);
  void give_up_state(PrefixNode& node);
  bool merge_into_child(PrefixNode& node);
  void free_page(int32_t page);
  void remember_edge(const PrefixNode& leaf);

  void set_middle(PrefixNode& node, bool middle);

  // Where a node stands in the orders, after it or what its score depends on has changed.
  void place(PrefixNode& node);
  void place_states_below(PrefixNode& node);
  void count_pages(const PrefixNode& node, int64_t pages);

  struct Census;  // what a walk over all nodes finds (prefix_tree_invariants.cpp)
  void check_node(const PrefixNode& node, bool idle, Census& census) const;
  void check_pages(const PrefixNode& node, Census& census) const;

  PrefixTreeOptions options_;
  EvictionScore score_;
  PageAllocator& pages_;
  StateAllocator& states_;

  std::map<std::string, std::unique_ptr<PrefixNode>, std::less<>> roots_;  // by namespace
  EvictionOrder leaves_;         // unlocked ones, by what they are worth
  EvictionOrder state_order_;    // unlocked states
  EvictionOrder middle_states_;  // unlocked ones, by age
  int64_t max_middle_states_;
  GhostSet ghosts_;
  std::unordered_map<int32_t, int64_t> shared_pages_;  // how many nodes use it without owning it
  PrefixTreeStats stats_;
  uint64_t clock_ = 0;  // counts insert() and touch()
  uint64_t epoch_ = 0;
  uint64_t next_serial_ = 1;
};

}  // namespace heddle::cache
