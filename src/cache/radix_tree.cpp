// SPDX-License-Identifier: Apache-2.0
#include "cache/radix_tree.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "core/check.h"

namespace heddle::cache {

// Compares blocks with memcmp, since they agree most of the time, and only the first different
// block token by token: 32k equal tokens take a few microseconds.
int64_t shared_prefix_length(std::span<const TokenId> a, std::span<const TokenId> b) {
  constexpr size_t kBlock = 256;  // 1 KiB, well within the L1 cache
  const size_t size = std::min(a.size(), b.size());
  size_t index = 0;
  while (index + kBlock <= size &&
         std::memcmp(&a[index], &b[index], kBlock * sizeof(TokenId)) == 0) {
    index += kBlock;
  }
  while (index < size && a[index] == b[index]) ++index;
  return static_cast<int64_t>(index);
}

PrefixNode* RadixTree::find_root(std::string_view name_space) const {
  const auto found = roots_.find(name_space);
  return found == roots_.end() ? nullptr : found->second.get();
}

PrefixNode& RadixTree::find_or_add_root(std::string_view name_space) {
  if (PrefixNode* root = find_root(name_space)) return *root;
  const auto [entry, made] =
      roots_.emplace(std::string(name_space), std::make_unique<PrefixNode>());
  HEDDLE_CHECK(made);
  entry->second->name_space = &entry->first;
  entry->second->hash = request::PrefixHashes({}, name_space).of({});
  return *entry->second;
}

void RadixTree::remove_root(const PrefixNode& root) {
  HEDDLE_CHECK(root.is_root() && root.is_leaf());
  roots_.erase(roots_.find(*root.name_space));
}

PrefixNode& RadixTree::split(PrefixNode& node, int64_t length, const request::PrefixHash& hash) {
  auto upper = std::make_unique<PrefixNode>();
  const int64_t end = node.begin + length;
  upper->parent = node.parent;
  upper->serial = next_serial_++;
  upper->begin = node.begin;
  upper->tokens.assign(node.tokens.begin(), node.tokens.begin() + length);
  upper->hash = hash;
  upper->first_page = node.first_page;
  upper->locks = node.locks;
  upper->kv_uses = node.kv_uses;
  upper->kv_used = node.kv_used;

  std::unique_ptr<PrefixNode>& link = *node.parent->child_position(node.tokens.front());
  const int64_t num_upper = std::clamp<int64_t>(pages_.pages_for(end) - node.first_page, 0,
                                                static_cast<int64_t>(node.pages.size()));
  upper->pages.assign(node.pages.begin(), node.pages.begin() + num_upper);
  node.pages.erase(node.pages.begin(), node.pages.begin() + num_upper);
  const auto upper_refs = node.window_refs.begin() + num_upper * std::ssize(windows_);
  upper->window_refs.assign(node.window_refs.begin(), upper_refs);
  node.window_refs.erase(node.window_refs.begin(), upper_refs);
  node.first_page += num_upper;
  node.tokens.erase(node.tokens.begin(), node.tokens.begin() + length);
  node.begin = end;

  PrefixNode& result = *upper;
  std::swap(link, upper);
  node.parent = &result;
  result.children.push_back(std::move(upper));
  ++counts_.num_nodes;
  return result;
}

PrefixNode& RadixTree::add_leaf(PrefixNode& parent, std::span<const TokenId> tokens,
                                std::span<const int32_t> pages,
                                std::span<const PinnedWindow> pinned,
                                const request::PrefixHash& hash) {
  auto made = std::make_unique<PrefixNode>();
  PrefixNode& leaf = *made;
  leaf.parent = &parent;
  leaf.serial = next_serial_++;
  leaf.begin = parent.depth();
  leaf.tokens.assign(tokens.begin() + leaf.begin, tokens.end());
  leaf.hash = hash;
  leaf.first_page = leaf.begin / pages_.page_size();
  counts_.num_tokens += static_cast<int64_t>(leaf.tokens.size());
  ++counts_.num_nodes;

  if (leaf.begin % pages_.page_size() != 0) {
    const int32_t page = pages[static_cast<size_t>(leaf.first_page)];
    if (pages_.ids().owner(page) == Owner::kTree) share_page_above(leaf, page);
  }
  const int64_t end = pages_.pages_for(leaf.depth());
  leaf.pages.reserve(static_cast<size_t>(end - leaf.first_page));
  leaf.window_refs.reserve(leaf.pages.capacity() * windows_.size());
  for (int64_t index = leaf.end_page(); index < end; ++index) {
    const int32_t page = pages[static_cast<size_t>(index)];
    pages_.ids().move(page, Owner::kRequest, Owner::kTree);
    PrefixPage& added = leaf.pages.emplace_back();  // constructed in place: a copy would wait for
                                                    // the stores to its fields
    added.id = page;
    added.generation = pages_.ids().generation(page);
    for (size_t window = 0; window < windows_.size(); ++window) {
      leaf.window_refs.push_back(pinned.empty() ? PageRef() : adopt(window, pinned[window], index));
    }
  }
  count_pages(leaf, leaf.num_owned_pages());
  parent.children.insert(parent.child_position(leaf.tokens.front()), std::move(made));
  return leaf;
}

// Hands the sequence's page at this index to the tree, if the sequence owns the page.
PageRef RadixTree::adopt(size_t window, const PinnedWindow& pinned, int64_t index) {
  if (index < pinned.first || index >= std::ssize(pinned.pages)) return {};
  const int32_t page = pinned.pages[static_cast<size_t>(index)];
  if (windows_[window].ids().owner(page) != Owner::kRequest) return {};
  return windows_[window].adopt(page);
}

void RadixTree::drop_refs(PrefixNode& node, size_t i) {
  const std::span<PageRef> refs = node.refs_of(i);
  for (size_t window = 0; window < refs.size(); ++window) windows_[window].drop(refs[window]);
}

// The sequence writes on in a page that it published before. If the path still ends in that page,
// the leaf begins after it; if another page was inserted between, the leaf refers to the page.
void RadixTree::share_page_above(PrefixNode& leaf, int32_t page) {
  const PrefixNode* above = leaf.parent;
  while (above != nullptr && above->page_at(leaf.first_page) == nullptr) above = above->parent;
  HEDDLE_CHECK(above != nullptr);
  if (above->page_at(leaf.first_page)->id == page) {
    ++leaf.first_page;
    return;
  }
  const auto has_it = [&](const PrefixNode& node) {
    const PrefixPage* found = node.page_at(leaf.first_page);
    return found != nullptr && found->id == page;
  };
  while (above != nullptr && !has_it(*above)) above = above->parent;
  HEDDLE_CHECK(above != nullptr);
  leaf.pages.push_back({page, pages_.ids().generation(page), false});
  leaf.window_refs.resize(windows_.size());
  ++shared_pages_[page];
}

void RadixTree::forget_shared(int32_t page) {
  if (--shared_pages_.at(page) == 0) shared_pages_.erase(page);
}

void RadixTree::free_page(int32_t page) {
  HEDDLE_CHECK(pages_.ids().owner(page) == Owner::kTree);
  pages_.ids().free_one(page);
}

void RadixTree::count_pages(const PrefixNode& node, int64_t pages) {
  counts_.pages += pages;
  if (node.locks == 0) counts_.evictable_pages += pages;
}

void RadixTree::remove_leaf(PrefixNode& leaf) {
  HEDDLE_CHECK(leaf.is_leaf() && !leaf.has_state());
  HEDDLE_CHECK_EQ(leaf.locks, 0);
  count_pages(leaf, -leaf.num_owned_pages());
  for (size_t i = 0; i < leaf.pages.size(); ++i) {
    const PrefixPage& page = leaf.pages[i];
    if (page.owned) {
      drop_refs(leaf, i);
      free_page(page.id);
    } else {
      forget_shared(page.id);
    }
  }
  counts_.num_tokens -= static_cast<int64_t>(leaf.tokens.size());
  --counts_.num_nodes;
  auto& siblings = leaf.parent->children;
  siblings.erase(leaf.parent->child_position(leaf.tokens.front()));
}

PrefixNode* RadixTree::merge_into_child(PrefixNode& node) {
  if (node.has_state() || node.children.size() != 1) return nullptr;
  PrefixNode& child = *node.children.front();
  if (child.locks != node.locks) return nullptr;  // some lock is on the node itself

  if (!node.pages.empty() && !child.pages.empty() && child.first_page < node.end_page()) {
    // Both nodes have a page for the same tokens; the child's is used.
    PrefixPage& upper = node.pages.back();
    PrefixPage& lower = child.pages.front();
    if (upper.owned && upper.id != lower.id) {
      // A running sequence may still read the page that it published here, and so may a node below.
      if (node.locks > 0 || shared_pages_.contains(upper.id)) return nullptr;
      count_pages(node, -1);
      drop_refs(node, node.pages.size() - 1);
      free_page(upper.id);
    } else {
      const int32_t shared = upper.owned ? lower.id : upper.id;
      if (upper.owned) {
        lower.owned = true;
        std::ranges::copy(node.refs_of(node.pages.size() - 1), child.refs_of(0).begin());
      }
      forget_shared(shared);
    }
    node.pages.pop_back();
    node.window_refs.resize(node.pages.size() * windows_.size());
  }
  if (!node.pages.empty() || child.pages.empty()) child.first_page = node.first_page;
  node.pages.insert(node.pages.end(), child.pages.begin(), child.pages.end());
  child.pages = std::move(node.pages);
  node.window_refs.insert(node.window_refs.end(), child.window_refs.begin(),
                          child.window_refs.end());
  child.window_refs = std::move(node.window_refs);
  std::unique_ptr<PrefixNode>& link = *node.parent->child_position(node.tokens.front());
  node.tokens.insert(node.tokens.end(), child.tokens.begin(), child.tokens.end());
  child.tokens = std::move(node.tokens);
  child.begin = node.begin;
  child.parent = node.parent;

  std::unique_ptr<PrefixNode> survivor = std::move(node.children.front());
  node.children.clear();
  link = std::move(survivor);  // deletes `node`
  --counts_.num_nodes;
  return &child;
}

void RadixTree::lock(PrefixNode& node) {
  for (PrefixNode* above = &node; !above->is_root(); above = above->parent) {
    if (above->locks++ == 0) counts_.evictable_pages -= above->num_owned_pages();
  }
}

void RadixTree::move_lock_down(PrefixNode& node, const PrefixNode& above) {
  for (PrefixNode* next = &node; next != &above; next = next->parent) {
    if (next->locks++ == 0) counts_.evictable_pages -= next->num_owned_pages();
  }
}

void RadixTree::unlock(PrefixNode& node) {
  for (PrefixNode* above = &node; !above->is_root(); above = above->parent) {
    HEDDLE_CHECK(above->locks > 0);
    if (--above->locks == 0) counts_.evictable_pages += above->num_owned_pages();
  }
}

template <typename Node, typename Visit>
void RadixTree::visit_pages_up(Node* node, int64_t num_tokens, const Visit& visit) const {
  int64_t missing = pages_.pages_for(num_tokens);  // pages from this index on have been visited
  for (; missing > 0; node = node->parent) {
    HEDDLE_CHECK(node != nullptr);
    for (int64_t index = std::min(missing, node->end_page()); index-- > node->first_page;) {
      if (!visit(index, *node, static_cast<size_t>(index - node->first_page))) return;
    }
    if (!node->pages.empty()) missing = std::min(missing, node->first_page);
  }
}

void RadixTree::append_pages(const PrefixNode* node, int64_t num_tokens,
                             std::vector<int32_t>& pages) const {
  if (num_tokens == 0) return;
  HEDDLE_CHECK(node != nullptr);
  HEDDLE_CHECK_LT(node->begin, num_tokens);
  HEDDLE_CHECK_LE(num_tokens, node->depth());
  const size_t offset = pages.size();
  pages.resize(offset + static_cast<size_t>(pages_.pages_for(num_tokens)));
  visit_pages_up(node, num_tokens, [&](int64_t index, const PrefixNode& part, size_t i) {
    pages[offset + static_cast<size_t>(index)] = part.pages[i].id;
    return true;
  });
}

// ---- Tables with a window ----

int64_t RadixTree::deepest_with_windows(const PrefixNode* node, int64_t num_tokens) const {
  int64_t end = num_tokens - num_tokens % pages_.page_size();
  // An end that suits one window may need pages that another window lacks, so this repeats until
  // the end is stable.
  for (int64_t before = end + 1; end < before;) {
    before = end;
    for (size_t window = 0; window < windows_.size(); ++window) {
      end = deepest_whole_window(node, end, window);
    }
    if (windows_.size() == 1) break;
  }
  return end;
}

int64_t RadixTree::deepest_whole_window(const PrefixNode* node, int64_t num_tokens,
                                        size_t window) const {
  const WindowPages& kept = windows_[window];
  const int64_t page_size = pages_.page_size();
  int64_t end = num_tokens / page_size;  // the candidate for the end, in pages
  int64_t first = kept.first_page(end * page_size);
  visit_pages_up(node, end * page_size, [&](int64_t index, const PrefixNode& part, size_t i) {
    if (end <= first) return false;
    if (!kept.has(part.refs_of(i)[window])) {
      end = index;
      first = kept.first_page(end * page_size);
      return end > 0;
    }
    return index > first;
  });
  return end * page_size;
}

bool RadixTree::has_whole_windows(const PrefixNode& node) const {
  for (size_t window = 0; window < windows_.size(); ++window) {
    if (!has_whole_window(node, window)) return false;
  }
  return true;
}

bool RadixTree::has_whole_window(const PrefixNode& node, size_t window) const {
  const WindowPages& kept = windows_[window];
  const int64_t first = kept.first_page(node.depth());
  bool whole = true;
  visit_pages_up(&node, node.depth(), [&](int64_t index, const PrefixNode& part, size_t i) {
    if (index < first) return false;
    whole = kept.has(part.refs_of(i)[window]);
    return whole;
  });
  return whole;
}

void RadixTree::append_window(const PrefixNode* node, int64_t num_tokens, size_t window,
                              std::vector<PageRef>& pages) const {
  if (num_tokens == 0) return;
  const int64_t first = windows_[window].first_page(num_tokens);
  const int64_t end = pages_.pages_for(num_tokens);
  if (end <= first) return;
  const size_t offset = pages.size();
  pages.resize(offset + static_cast<size_t>(end - first));
  visit_pages_up(node, num_tokens, [&](int64_t index, const PrefixNode& part, size_t i) {
    if (index < first) return false;
    const PageRef& page = part.refs_of(i)[window];
    HEDDLE_CHECK(windows_[window].has(page));
    pages[offset + static_cast<size_t>(index - first)] = page;
    return true;
  });
}

void RadixTree::refill_windows(PrefixNode& node, int64_t num_tokens,
                               std::span<const PinnedWindow> pinned) {
  const int64_t whole = num_tokens - num_tokens % pages_.page_size();
  PrefixNode* covering = &node;
  while (!covering->is_root() && covering->begin >= whole) covering = covering->parent;
  for (size_t window = 0; window < pinned.size(); ++window) {
    visit_pages_up(covering, whole, [&](int64_t index, PrefixNode& part, size_t i) {
      if (index < pinned[window].first) return false;
      PageRef& page = part.refs_of(i)[window];
      if (part.pages[i].owned && !windows_[window].has(page)) {
        page = adopt(window, pinned[window], index);
      }
      return true;
    });
  }
}

struct RadixTree::PageCensus {
  Counts counts;
  std::unordered_set<int32_t> owned;
  std::unordered_map<int32_t, int64_t> shared;
  std::vector<std::unordered_set<int32_t>> refs;  // by table with a window: pages found in nodes
};

void RadixTree::check_invariants(bool idle) const {
  for (const auto& [name, root] : roots_) {
    HEDDLE_CHECK_EQ(*root->name_space, name);
    HEDDLE_CHECK(root->is_root() && root->tokens.empty() && root->pages.empty());
    HEDDLE_CHECK(!root->has_state() && root->locks == 0 && !root->is_leaf());
    check_children(*root);
  }
  PageCensus census;
  census.refs.resize(windows_.size());
  for_each_node([&](const PrefixNode& node) {
    ++census.counts.num_nodes;
    census.counts.num_tokens += static_cast<int64_t>(node.tokens.size());
    if (idle) HEDDLE_CHECK_EQ(node.locks, 0);  // I5: an idle tree has no locks
    check_children(node);
    check_pages(node, census);
  });
  // I4: the counters agree with the nodes.
  HEDDLE_CHECK_EQ(counts_.num_nodes, census.counts.num_nodes);
  HEDDLE_CHECK_EQ(counts_.num_tokens, census.counts.num_tokens);
  HEDDLE_CHECK_EQ(counts_.pages, census.counts.pages);
  HEDDLE_CHECK_EQ(counts_.evictable_pages, census.counts.evictable_pages);
  HEDDLE_CHECK(shared_pages_ == census.shared);
  // I3 and I11: the pages that the pool records as the tree's are those of the nodes.
  HEDDLE_CHECK_EQ(pages_.ids().count(Owner::kTree), counts_.pages);
  pages_.check_invariants();
  for (size_t window = 0; window < windows_.size(); ++window) {
    HEDDLE_CHECK_EQ(windows_[window].ids().count(Owner::kTree), std::ssize(census.refs[window]));
    windows_[window].check_invariants();
  }
}

// I1: siblings differ in their first token, links and hashes agree. I5: a node has at least as many
// locks as its children together.
void RadixTree::check_children(const PrefixNode& node) const {
  int64_t locks_below = 0;
  for (size_t i = 0; i < node.children.size(); ++i) {
    const PrefixNode& child = *node.children[i];
    HEDDLE_CHECK(child.parent == &node);
    HEDDLE_CHECK_EQ(child.begin, node.depth());
    HEDDLE_CHECK(!child.tokens.empty());
    request::PrefixHash hash = node.hash;
    for (int64_t index = 0; const TokenId token : child.tokens) {
      hash = request::extend_hash(hash, child.begin + index++, token);
    }
    HEDDLE_CHECK(child.hash == hash);
    if (i > 0) HEDDLE_CHECK_LT(node.children[i - 1]->tokens.front(), child.tokens.front());
    locks_below += child.locks;
  }
  if (!node.is_root()) HEDDLE_CHECK_GE(node.locks, locks_below);
}

// I2: a node has the pages of its edge, with or without the page in which the edge begins. I3: each
// page has one owner. I14: the ids have not been handed out again.
void RadixTree::check_pages(const PrefixNode& node, PageCensus& census) const {
  const int64_t page_size = pages_.page_size();
  const int64_t begin_page = node.begin / page_size;
  const bool shares_first = node.begin % page_size != 0 && node.first_page == begin_page + 1;
  HEDDLE_CHECK(node.first_page == begin_page || shares_first);
  HEDDLE_CHECK_EQ(node.end_page(), pages_.pages_for(node.depth()));
  HEDDLE_CHECK_EQ(node.window_refs.size(), node.pages.size() * windows_.size());
  for (size_t i = 0; i < node.pages.size(); ++i) {
    const PrefixPage& page = node.pages[i];
    HEDDLE_CHECK(pages_.ids().owner(page.id) == Owner::kTree);
    HEDDLE_CHECK_EQ(pages_.ids().generation(page.id), page.generation);
    check_refs(node, i, census);
    if (page.owned) {
      HEDDLE_CHECK(census.owned.insert(page.id).second);
      ++census.counts.pages;
      if (node.locks == 0) ++census.counts.evictable_pages;
      continue;
    }
    HEDDLE_CHECK_EQ(i, 0U);
    ++census.shared[page.id];
    const auto owns_it = [&](const PrefixNode& above) {
      const PrefixPage* found = above.page_at(node.first_page);
      return found != nullptr && found->id == page.id && found->owned;
    };
    const PrefixNode* above = node.parent;
    while (above != nullptr && !owns_it(*above)) above = above->parent;
    HEDDLE_CHECK(above != nullptr);
  }
}

// I3, I14: a page of a table with a window that still exists belongs to exactly one page of table
// 0, which the node owns.
void RadixTree::check_refs(const PrefixNode& node, size_t i, PageCensus& census) const {
  const std::span<const PageRef> refs = node.refs_of(i);
  for (size_t window = 0; window < refs.size(); ++window) {
    if (!windows_[window].has(refs[window])) continue;
    HEDDLE_CHECK(node.pages[i].owned);
    HEDDLE_CHECK(census.refs[window].insert(refs[window].id).second);
  }
}

}  // namespace heddle::cache
