// SPDX-License-Identifier: Apache-2.0
// RadixTree: the nodes of the prefix tree and the KV pages they own, one tree of tokens for each
// namespace. It decides nothing: PrefixTree says where to insert, split, join and remove.
//
// Edges end anywhere, pages do not. A page that two edges share belongs to the upper one if the
// lower was split off it; an edge that was added below the middle of a page brings a page of its
// own that repeats the first rows. append_pages() puts the pages of a path together; where two
// edges have a page for the same tokens, the lower edge's counts.
//
// A page of the tree has beside it the page of the same tokens in each page table with a window,
// for as long as that is kept there. It comes with the page, or later from a sequence that computed
// the same tokens again (refill_windows()).
//
// Ownership:  pages go from Owner::kRequest to Owner::kTree when an edge takes them, and are freed
//             with it. Locks on a node keep the nodes and the pages of its whole path.
// Threading:  confined to the engine thread.
// Invariants: check_invariants() proves I1, I2, the pages' part of I3, I4, I11 and I14, and the
//             path locks of I5 (the list is in prefix_tree.h).
// Cost:       O(tokens moved) to split, add and join; O(depth) to lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/request.h>

#include "cache/page_allocator.h"
#include "cache/prefix_node.h"
#include "cache/window_pages.h"
#include "request/prefix_hashes.h"

namespace heddle::cache {

// How many tokens the two sequences have in common at their beginning.
[[nodiscard]] int64_t shared_prefix_length(std::span<const TokenId> a, std::span<const TokenId> b);

class RadixTree {
 public:
  struct Counts {
    int64_t num_nodes = 0;   // without roots
    int64_t num_tokens = 0;  // sum of edge lengths
    int64_t pages = 0;       // owned; the next field is a subset
    int64_t evictable_pages = 0;
  };

  using Roots = std::map<std::string, std::unique_ptr<PrefixNode>, std::less<>>;

  // The pages of page table 0 and of the tables with a window. Both outlive the tree.
  RadixTree(PageAllocator& pages, std::span<WindowPages> windows)
      : pages_(pages), windows_(windows) {}

  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // Null if the namespace has no nodes.
  [[nodiscard]] PrefixNode* find_root(std::string_view name_space) const;
  PrefixNode& find_or_add_root(std::string_view name_space);

  // The root has no children (checked).
  void remove_root(const PrefixNode& root);

  // Cuts the edge of `node` after its first `length` tokens; returns the new upper node, which has
  // the pages of its tokens, the locks of `node` and its uses. `node` keeps its state. `hash` is
  // that of the upper node's end.
  PrefixNode& split(PrefixNode& node, int64_t length, const request::PrefixHash& hash);

  // Adds an edge below `parent` for the tokens beyond it. `tokens` and `pages` are those of the
  // whole path: page of token t is pages[t / page_size]. Takes the pages that the path does not
  // have, and with them those of the same tokens in each table with a window that `pinned` has
  // (empty: none). `hash` is that of all tokens.
  PrefixNode& add_leaf(PrefixNode& parent, std::span<const TokenId> tokens,
                       std::span<const int32_t> pages, std::span<const PinnedWindow> pinned,
                       const request::PrefixHash& hash);

  // Removes a leaf without locks and without a state (checked) and frees its pages.
  void remove_leaf(PrefixNode& leaf);

  // Joins a node that has no state with its only child. The child survives, because locks may point
  // at it, and is returned. Null, and nothing changes, if a lock, a fork or a page that is still
  // read keeps the two apart.
  PrefixNode* merge_into_child(PrefixNode& node);

  // Every lock on a node locks the path to it.
  void lock(PrefixNode& node);
  void unlock(PrefixNode& node);

  // As lock() of the node and unlock() of one above it, or of itself. Cost: O(nodes between them).
  void move_lock_down(PrefixNode& node, const PrefixNode& above);

  // Appends the pages of the first `num_tokens` tokens of the path to `node`, which end on its edge
  // (checked).
  void append_pages(const PrefixNode* node, int64_t num_tokens, std::vector<int32_t>& pages) const;

  // The largest multiple of the page size, at most `num_tokens`, after which a sequence on the path
  // to `node` could resume: every table with a window has the pages that it sees.
  [[nodiscard]] int64_t deepest_with_windows(const PrefixNode* node, int64_t num_tokens) const;

  // Whether a sequence could resume after all tokens of the path to `node`.
  [[nodiscard]] bool has_whole_windows(const PrefixNode& node) const;

  // Appends the pages of table 1 + `window` that the token after the first `num_tokens` of the path
  // to `node` sees; all must exist (checked).
  void append_window(const PrefixNode* node, int64_t num_tokens, size_t window,
                     std::vector<PageRef>& pages) const;

  // Takes pages of `pinned`, one table each, for whole pages of the path's first `num_tokens`
  // tokens that the tree has dropped from that table. The sequence computed the same tokens and no
  // longer writes to them.
  void refill_windows(PrefixNode& node, int64_t num_tokens, std::span<const PinnedWindow> pinned);

  [[nodiscard]] const Counts& counts() const { return counts_; }

  [[nodiscard]] const Roots& roots() const { return roots_; }

  // Calls body(const PrefixNode&) for every node that is not a root, parents first.
  template <typename Body>
  void for_each_node(const Body& body) const {
    std::vector<const PrefixNode*> pending;
    for (const auto& [name, root] : roots_) {
      pending.push_back(root.get());
      while (!pending.empty()) {
        const PrefixNode* node = pending.back();
        pending.pop_back();
        if (!node->is_root()) body(*node);
        for (const auto& child : node->children) pending.push_back(child.get());
      }
    }
  }

  // Proves the invariants or aborts. `idle`: no lock may be left. Cost: O(tokens).
  void check_invariants(bool idle) const;

 private:
  struct PageCensus;

  // Calls visit(index, node, i) for the pages of the path's first `num_tokens` tokens, the last one
  // first, until it returns false: page `index` of the path is node.pages[i]. Where two edges have
  // a page, the lower one's.
  template <typename Node, typename Visit>
  void visit_pages_up(Node* node, int64_t num_tokens, const Visit& visit) const;

  [[nodiscard]] int64_t deepest_whole_window(const PrefixNode* node, int64_t num_tokens,
                                             size_t window) const;
  [[nodiscard]] bool has_whole_window(const PrefixNode& node, size_t window) const;
  [[nodiscard]] PageRef adopt(size_t window, const PinnedWindow& pinned, int64_t index);
  void drop_refs(PrefixNode& node, size_t i);
  void check_refs(const PrefixNode& node, size_t i, PageCensus& census) const;
  void share_page_above(PrefixNode& leaf, int32_t page);
  void forget_shared(int32_t page);
  void free_page(int32_t page);
  void count_pages(const PrefixNode& node, int64_t pages);
  void check_children(const PrefixNode& node) const;
  void check_pages(const PrefixNode& node, PageCensus& census) const;

  PageAllocator& pages_;
  std::span<WindowPages> windows_;
  Roots roots_;  // by namespace
  Counts counts_;
  std::unordered_map<int32_t, int64_t> shared_pages_;  // how many nodes use it without owning it
  uint64_t next_serial_ = 1;
};

}  // namespace heddle::cache
