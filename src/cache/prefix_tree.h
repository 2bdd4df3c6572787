// SPDX-License-Identifier: Apache-2.0
// PrefixTree: the tokens of earlier sequences, with their KV pages and recurrent states, so that a
// sequence that begins with the same tokens resumes instead of computing them.
//
// A radix tree over token ids. A node is an edge of tokens; its depth is the number of tokens from
// the root to the end of the edge. It owns the KV pages of its edge and, at some nodes only, a
// snapshot of the recurrent state after exactly `depth` tokens. A node without a state keeps its
// KV: it shows where prompts fork and lets others share its rows, but no sequence can resume there.
// For models without recurrent state a sequence can resume at every page boundary. A sequence that
// resumes inside a page copies that page before it writes to it.
//
// The tree joins four parts, each with its own state and contract:
//   RadixTree      edges, pages and path locks (radix_tree.h)
//   NodeStates     states on nodes and their locks (node_states.h)
//   EvictionQueue  the order in which nodes lose pages and states (eviction_queue.h)
//   GhostSet       hashes of prefixes that were evicted (ghost_set.h)
//
// With windowed page tables (cache_pools.h) a sequence can resume after a token only while these
// tables still have the pages of the last `window` tokens before it; match() checks each table.
//
// A node that is not locked itself is valid until the next non-const call: evictions remove nodes,
// and a node without state, fork or lock is merged into its only child, which survives.
//
// match() is const: it neither splits nodes nor counts as a use. Only insert() splits.
//
// Ownership: pages and slots given to insert() go from Owner::kRequest to Owner::kTree and are
//            freed when they are evicted. A lock on a node keeps the KV of its whole path, and its
//            state if the lock asked for it.
// Threading: confined to the engine thread.
// Cost:      match and insert compare O(tokens) ids with SIMD-friendly loops, insert only those
//            after `begins_at`. insert hashes at most 63 tokens for that node and for every new
//            node, and visits all nodes of the path. Evictions are O(log nodes), without states
//            also O(tokens of the leaf), whose hashes are remembered.
//
// The invariants of the tree and the cache, and the code that checks each. check_invariants() of
// the tree calls those of its parts; PrefixCache::check_invariants() calls that of the tree.
//   I1   siblings differ in their first token; links and hashes agree      RadixTree
//   I2   a node has exactly the pages of its edge; no edge is empty        RadixTree
//   I3   every page and every slot has one owner                           RadixTree, NodeStates,
//                                                                          check_ownership
//   I4   counters of evictable and locked data agree with the nodes        RadixTree, NodeStates
//   I5   a node has at least the locks of its children and of its state;   RadixTree, NodeStates
//        an idle tree has none
//   I6   a leaf without a state is locked                                  PrefixTree
//   I7   the orders list exactly what can be evicted, by today's keys      EvictionQueue
//   I7   the orders list exactly what can be evicted, by present keys      EvictionQueue
//   I8   the label of a state is the depth of its node                     NodeStates; match() and
//   I9   labels are on the grid, except those of exact ends                check_ownership
//   I10  a sequence of N tokens starts from at most N - 1, or repeats a    check_ownership
//        whole prompt whose hidden vector is kept
//   I11  free, tree's and sequences' ids add up to the pool                IdPool, RadixTree,
//                                                                          NodeStates,
//                                                                          check_ownership
//   I12  tokens found and tokens left to compute add up to N               check_ownership
//   I13  a slot that a step in flight writes is not read, freed or given   check_ownership; the
//        to another sequence                                               label oracle watches
//                                                                          every step
//   I14  ids have generations, and a node has the id that was attached     RadixTree, NodeStates
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
  PrefixNode* resume = nullptr;   // node after which to resume; null: before the first token
  int64_t usable_tokens = 0;      // number of usable tokens: the depth of `resume`
  int64_t known_tokens = 0;       // usable_tokens as it would be if no window page were missing
  PrefixNode* kv_node = nullptr;  // deepest node with at least one matching token
  int64_t kv_tokens = 0;          // number of matching tokens, with or without a state
  PrefixNode* exact = nullptr;    // node that ends where the tokens end and has a state and a
                                  // hidden vector
};

// A lock on a node. Release it with unlock(): check_invariants() of an idle tree aborts if a lock
// remains.
struct PrefixLock {
  PrefixNode* node = nullptr;  // null: the lock is empty
  bool locks_state = false;
};

struct PrefixInsertion {
  std::span<const TokenId> tokens;
  std::string_view name_space;
  const request::PrefixHashes& hashes;  // hashes of `tokens`, or of more or fewer tokens that begin
                                        // alike, in the namespace (checked)
  // The page of token t is pages[t / page_size]; the tree takes over the pages it does not have
  // yet, if their owner is kRequest.
  std::span<const int32_t> pages;
  // The sequence's pages in each table with a window; the tree takes over those that it pins;
  // empty: none.
  std::span<const PinnedWindow> windows = {};
  int32_t state_slot = 0;     // slot with label tokens.size() (checked); 0: no
                              // state
  bool keeps_hidden = false;  // a hidden vector is stored with the slot
  bool middle = false;        // the snapshot was taken in case another sequence
                              // forks there
  // A locked node whose path is a prefix of `tokens` (checked by hash): the search begins there.
  // Null: at the root.
  PrefixNode* begins_at = nullptr;
};

struct PrefixInserted {
  PrefixNode* node = nullptr;  // the node that ends where the tokens end; null if there are no
                               // tokens
  int64_t known_tokens = 0;    // tokens that were in the tree before
  // True: the tree took over the slot. False: the node already had a state, and the caller still
  // owns its slot. A state with a hidden vector replaces an unlocked one without.
  bool state_taken = false;
};

struct PrefixTreeStats {
  int64_t num_nodes = 0;   // nodes of the tree, roots not counted
  int64_t num_tokens = 0;  // sum of the edge lengths
  int64_t pages = 0;       // pages that the tree owns; the next field counts some of them
  int64_t evictable_pages = 0;
  int64_t states = 0;
  int64_t evictable_states = 0;
  int64_t middle_states = 0;
  int64_t evicted_tokens = 0;  // since the start, like the next field
  int64_t evicted_states = 0;
};

class PrefixTree {
 public:
  // The allocators and `windows` outlive the tree.
  PrefixTree(const PrefixTreeOptions& options, PageAllocator& pages, std::span<WindowPages> windows,
             StateAllocator& states);
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The longest cached prefix of `tokens` in the namespace. At most `max_usable` tokens count as
  // usable.
  [[nodiscard]] PrefixMatch match(std::span<const TokenId> tokens, std::string_view name_space,
                                  int64_t max_usable) const;

  // How many tokens a sequence with this match could reuse if nothing had been evicted; at most
  // `max_usable`. Evicted prefixes are remembered only while the pools are filled a few times;
  // older ones do not count. `hashes` are those of all whole blocks of the tokens, in the namespace
  // (checked). Cost: O(blocks beyond the match), one table lookup each.
  [[nodiscard]] int64_t usable_without_eviction(std::span<const TokenId> tokens,
                                                const request::PrefixHashes& hashes,
                                                const PrefixMatch& match, int64_t max_usable) const;

  // Depth of a node in tokens; 0 for null.
  [[nodiscard]] int64_t depth(const PrefixNode* node) const;
  // Slot of a node's state; 0: the node has none.
  [[nodiscard]] int32_t state_slot(const PrefixNode* node) const;

  // The node on the path to `node` whose edge contains token num_tokens - 1; null if num_tokens is
  // 0.
  [[nodiscard]] PrefixNode* covering(PrefixNode* node, int64_t num_tokens) const;

  // The parent of a node; null for a child of the root.
  [[nodiscard]] const PrefixNode* parent(const PrefixNode* node) const;

  // Appends the pages of the first `num_tokens` tokens of the path to `node`, whose edge must
  // contain the last of them (checked).
  void append_pages(const PrefixNode* node, int64_t num_tokens, std::vector<int32_t>& pages) const {
    radix_.append_pages(node, num_tokens, pages);
  }

  // Appends the pages of page table 1 + `window` for a path, as RadixTree::append_window().
  void append_window(const PrefixNode* node, int64_t num_tokens, size_t window,
                     std::vector<PageRef>& pages) const {
    radix_.append_window(node, num_tokens, window, pages);
  }

  // Locks the KV of the path to `node`, and with `state` also the node's state if it has one. A
  // null node gives an empty lock.
  [[nodiscard]] PrefixLock lock(PrefixNode* node, bool state);
  void release_state(PrefixLock& lock);  // unlocks the state, keeps the KV locked
  void unlock(PrefixLock& lock);         // releases the lock and empties it

  // Moves a lock on KV alone to `node`. Cost: O(nodes between the two) if the old node is an
  // ancestor.
  void move(PrefixLock& lock, PrefixNode* node);

  // Called when a sequence resumes at `node`: counts a use of the path's KV and of the node's
  // state.
  void touch(PrefixNode* node);

  PrefixInserted insert(const PrefixInsertion& insertion);

  // Drops the node's state if it is not locked, no sequence resumed there and nothing forks there.
  // A later decode snapshot replaces such a state. Returns whether it was dropped. Must be called
  // before unlock(), after which the node may be gone.
  bool drop_unused_state(PrefixNode* node);

  // Free at least `count` unlocked pages, or states, if there are as many, and return the number
  // freed. It may exceed `count`. The state of a leaf is freed together with the leaf's KV.
  int64_t evict_pages(int64_t count);
  int64_t evict_states(int64_t count);

  // Evicts a state to make room for a middle state at `to` tokens; the next state above it is at
  // `from`, and its sequence began at tick `since`. While less than a quarter of the states are
  // middle states, the least valuable state is evicted. Beyond that the oldest middle state is, if
  // it was last used before `since`, or else a state that is worth less than the new one. Returns
  // whether a state was evicted.
  bool evict_state_for_middle(int64_t from, int64_t to, uint64_t since);

  // Whether evict_state_for_middle() would evict a state if it were called after `owed` calls that
  // are postponed. Also false if this depends on which states the postponed calls evict. Cost:
  // O(owed).
  [[nodiscard]] bool can_evict_for_middle(int64_t from, int64_t to, uint64_t since,
                                          int64_t owed) const {
    return victim_for_middle(from, to, since, owed) != nullptr;
  }

  // Evicts pages and states in the order of their value until `bytes` bytes are free; returns how
  // many are.
  int64_t evict_bytes(int64_t bytes);

  // Evicts everything that is not locked and forgets the evicted prefixes.
  void clear();

  // The tree's clock: the number of insertions and uses.
  [[nodiscard]] uint64_t clock() const { return clock_; }

  // A number that grows whenever a match may have become longer.
  [[nodiscard]] uint64_t epoch() const { return epoch_; }

  [[nodiscard]] PrefixTreeStats stats() const;

  // The nodes, for reading (RadixTree::for_each_node).
  [[nodiscard]] const RadixTree& nodes() const { return radix_; }

  // One line per node, children indented below their parent in the order of their first token:
  //   [0,192)@192
  //     [192,768)
  // A line with the name of the namespace precedes its nodes, unless the name is empty. The number
  // after @ is the label of the node's state; without @ it has none.
  [[nodiscard]] std::string to_string() const;

  // Checks the invariants and aborts if one is broken. `idle`: no lock may remain.
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
  double half_life_;           // ticks of clock_ after which a use counts half
  int64_t max_middle_states_;  // with more middle states than this, a new one may not evict just
                               // any state
  int64_t evicted_tokens_ = 0;
  int64_t evicted_states_ = 0;
  uint64_t clock_ = 0;  // number of calls of insert() and touch()
  uint64_t epoch_ = 0;
};

}  // namespace heddle::cache
