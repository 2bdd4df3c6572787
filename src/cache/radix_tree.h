// SPDX-License-Identifier: Apache-2.0
// RadixTree: the nodes of the prefix tree and the KV pages they own, one tree of tokens for each
// namespace. PrefixTree decides where to insert, split, merge and remove.
//
// Edges end anywhere, pages only at multiples of the page size. If an edge is split inside a page,
// the upper part owns the page. An edge that was added below the middle of a page has a page of its
// own, which repeats the first rows. append_pages() collects the pages of a path; where two edges
// have a page for the same tokens, it uses the lower edge's.
//
// Next to each of its pages, a node refers to the pages of the same tokens in each page table with
// a window, as long as those are kept. They are added with the page, or later by a sequence that
// computed the same tokens again (refill_windows()).
//
// Ownership:  pages go from Owner::kRequest to Owner::kTree when an edge takes them over, and are
//             freed with it. Locks on a node keep the nodes and the pages of its whole path.
// Threading:  confined to the engine thread.
// Invariants: check_invariants() checks I1, I2, the pages' part of I3, I4, I11 and I14, and the
//             path locks of I5 (the list is in prefix_tree.h).
// Cost:       O(tokens moved) to split, add and merge; O(depth) to lock.
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

// Length of the longest common prefix of the two sequences.
[[nodiscard]] int64_t shared_prefix_length(std::span<const TokenId> a, std::span<const TokenId> b);

class RadixTree {
 public:
  struct Counts {
    int64_t num_nodes = 0;   // nodes of all trees, roots not counted
    int64_t num_tokens = 0;  // sum of the edge lengths
    int64_t pages = 0;       // pages that nodes own; the next field counts some of them
    int64_t evictable_pages = 0;
  };

  using Roots = std::map<std::string, std::unique_ptr<PrefixNode>, std::less<>>;

  // The pages of page table 0, and of the tables with a window. Both must outlive the tree.
  RadixTree(PageAllocator& pages, std::span<WindowPages> windows)
      : pages_(pages), windows_(windows) {}

  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // The root of the namespace's tree; null if the namespace has no nodes.
  [[nodiscard]] PrefixNode* find_root(std::string_view name_space) const;
  PrefixNode& find_or_add_root(std::string_view name_space);

  // The root must have no children (checked).
  void remove_root(const PrefixNode& root);

  // Cuts the edge of `node` after its first `length` tokens. Returns the new upper node, which gets
  // the pages of its tokens, and the locks and uses of `node`. `node` keeps its state. `hash` is
  // the hash of the tokens up to the cut.
  PrefixNode& split(PrefixNode& node, int64_t length, const request::PrefixHash& hash);

  // Adds an edge below `parent` for the tokens after it. `tokens` and `pages` are those of the
  // whole path: the page of token t is pages[t / page_size]. The edge takes over the pages that the
  // path does not have yet, and the pages of the same tokens that `pinned` has in each table with a
  // window (empty: none). `hash` is the hash of all tokens.
  PrefixNode& add_leaf(PrefixNode& parent, std::span<const TokenId> tokens,
                       std::span<const int32_t> pages, std::span<const PinnedWindow> pinned,
                       const request::PrefixHash& hash);

  // Removes a leaf, which must have no locks and no state (checked), and frees its pages.
  void remove_leaf(PrefixNode& leaf);

  // Merges a node without state into its only child and returns the child, which survives because
  // locks may point at it. Returns null and changes nothing if a lock, a fork or a page that is
  // still read keeps the two apart.
  PrefixNode* merge_into_child(PrefixNode& node);

  // A lock on a node locks the whole path to it.
  void lock(PrefixNode& node);
  void unlock(PrefixNode& node);

  // As lock(node) followed by unlock(above), where `above` is `node` or an ancestor. Cost: O(nodes
  // between them).
  void move_lock_down(PrefixNode& node, const PrefixNode& above);

  // Appends the pages of the first `num_tokens` tokens of the path to `node`, whose edge must
  // contain the last of them (checked).
  void append_pages(const PrefixNode* node, int64_t num_tokens, std::vector<int32_t>& pages) const;

  // The largest multiple of the page size, at most `num_tokens`, after which a sequence on the path
  // to `node` could resume: every table with a window has the pages that the next token reads.
  [[nodiscard]] int64_t deepest_with_windows(const PrefixNode* node, int64_t num_tokens) const;

  // Whether every table with a window has the pages needed to resume after all tokens of `node`'s
  // path.
  [[nodiscard]] bool has_whole_windows(const PrefixNode& node) const;

  // Appends the pages that the token at index `num_tokens` reads in page table 1 + `window`, for a
  // sequence that begins with the path to `node`. All of them must exist (checked).
  void append_window(const PrefixNode* node, int64_t num_tokens, size_t window,
                     std::vector<PageRef>& pages) const;

  // Takes over from `pinned`, one entry per table, the pages for whole pages of the path's first
  // `num_tokens` tokens that the tree has dropped from that table. The sequence computed the same
  // tokens and no longer writes to these pages.
  void refill_windows(PrefixNode& node, int64_t num_tokens, std::span<const PinnedWindow> pinned);

  [[nodiscard]] const Counts& counts() const { return counts_; }

  [[nodiscard]] const Roots& roots() const { return roots_; }

  // Calls body(const PrefixNode&) for every node that is not a root, parents before children.
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

  // Checks the invariants and aborts if one is broken. `idle`: no lock may remain. Cost: O(tokens).
  void check_invariants(bool idle) const;

 private:
  struct PageCensus;

  // Calls visit(index, node, i) for the pages of the path's first `num_tokens` tokens, the last one
  // first, until it returns false: page `index` of the path is node.pages[i]. If two edges have a
  // page for the same tokens, the lower edge's is visited.
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
  Roots roots_;  // the root of each namespace's tree
  Counts counts_;
  std::unordered_map<int32_t, int64_t> shared_pages_;  // by page: how many nodes use it without
                                                       // owning it
  uint64_t next_serial_ = 1;
};

}  // namespace heddle::cache
