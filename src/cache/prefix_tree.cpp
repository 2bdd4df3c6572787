// SPDX-License-Identifier: Apache-2.0
#include "cache/prefix_tree.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cache/prefix_node.h"
#include "cache/shared_prefix.h"
#include "core/check.h"

namespace heddle::cache {
namespace {

// Middle states may take a quarter of the states from others.
constexpr int64_t kMiddleShare = 4;

// How many states are kept once the pools are full, counting what the pages hold one every 256
// tokens; or without states, how many edges of eight pages.
int64_t capacity(const PrefixTreeOptions& options, const PageAllocator& pages,
                 const StateAllocator& states) {
  if (!options.needs_state) return pages.num_pages() / 8;
  const int64_t in_pages = pages.num_pages() * pages.page_size() / 256;
  const int64_t count = std::min(states.num_slots(), in_pages);
  return options.expected_states > 0 ? std::min(count, options.expected_states) : count;
}

// How many evicted points of resumption are remembered: states for a few times that the pools are
// filled, or without states a boundary for every page.
int64_t num_ghosts(const PrefixTreeOptions& options, const PageAllocator& pages,
                   const StateAllocator& states) {
  return options.needs_state ? 4 * capacity(options, pages, states) : pages.num_pages();
}

// A use halves its weight while the pool could be filled about twice.
double half_life(int64_t capacity) {
  return static_cast<double>(std::max<int64_t>(2 * capacity, 64));
}

}  // namespace

PrefixTree::PrefixTree(const PrefixTreeOptions& options, PageAllocator& pages,
                       StateAllocator& states)
    : options_(options),
      score_(options, half_life(capacity(options, pages, states))),
      pages_(pages),
      states_(states),
      max_middle_states_(states.num_slots() / kMiddleShare),
      ghosts_(num_ghosts(options, pages, states)) {
  if (options.expected_states > 0) {
    max_middle_states_ = std::min(max_middle_states_, options.expected_states / kMiddleShare);
  }
}

PrefixTree::~PrefixTree() = default;

PrefixNode* PrefixTree::find_root(std::string_view name_space) const {
  const auto found = roots_.find(name_space);
  return found == roots_.end() ? nullptr : found->second.get();
}

PrefixNode& PrefixTree::make_root(std::string_view name_space) {
  if (PrefixNode* root = find_root(name_space)) return *root;
  const auto [entry, made] =
      roots_.emplace(std::string(name_space), std::make_unique<PrefixNode>());
  HEDDLE_CHECK(made);
  entry->second->name_space = &entry->first;
  entry->second->hash = request::PrefixHashes({}, name_space).of({});
  return *entry->second;
}

void PrefixTree::check_state(const PrefixNode& node) const {
  HEDDLE_CHECK_EQ(states_.label(node.state.slot), node.depth());
  HEDDLE_CHECK_EQ(states_.ids().generation(node.state.slot), node.state.generation);
}

PrefixMatch PrefixTree::match(std::span<const TokenId> tokens, std::string_view name_space,
                              int64_t max_usable) const {
  PrefixMatch match;
  const auto num_tokens = static_cast<int64_t>(tokens.size());
  PrefixNode* node = find_root(name_space);
  while (node != nullptr && match.kv_tokens < num_tokens) {
    const auto rest = tokens.subspan(static_cast<size_t>(match.kv_tokens));
    node = node->find_child(rest.front());
    if (node == nullptr) break;
    match.kv_node = node;
    match.kv_tokens += shared_prefix_length(node->tokens, rest);
    if (match.kv_tokens < node->depth()) break;
    if (node->has_state() && node->depth() <= max_usable) match.resume = node;
    if (node->state.keeps_hidden && node->depth() == num_tokens) match.exact = node;
  }
  if (options_.needs_state) {
    match.usable_tokens = depth(match.resume);
    if (match.resume != nullptr) check_state(*match.resume);
    if (match.exact != nullptr) check_state(*match.exact);
    return match;
  }
  const int64_t usable = std::max<int64_t>(std::min(match.kv_tokens, max_usable), 0);
  match.usable_tokens = usable - usable % pages_.page_size();
  if (match.usable_tokens > 0) {
    match.resume = match.kv_node;
    while (match.resume->begin >= match.usable_tokens) match.resume = match.resume->parent;
  }
  return match;
}

int64_t PrefixTree::usable_without_eviction(std::span<const TokenId> tokens,
                                            const request::PrefixHashes& hashes,
                                            const PrefixMatch& match, int64_t max_usable) const {
  constexpr int64_t kBlock = request::PrefixHashes::kBlockTokens;
  const int64_t most = std::min(max_usable, std::ssize(tokens));
  HEDDLE_CHECK_GE(hashes.num_blocks(), most / kBlock);
  for (int64_t block = most / kBlock; block >= match.usable_tokens / kBlock; --block) {
    uint64_t hash = hashes.of_blocks(block);
    uint64_t offsets = ghosts_.offsets(hash);
    int64_t deepest = 0;
    for (int64_t end = block * kBlock; offsets != 0; offsets >>= 1) {
      if ((offsets & 1) != 0 && ghosts_.contains(hash)) deepest = end;
      if (end == most) break;
      hash = request::extend_hash(hash, tokens[static_cast<size_t>(end++)]);
    }
    if (deepest > match.usable_tokens) return deepest;
  }
  return match.usable_tokens;
}

int64_t PrefixTree::depth(const PrefixNode* node) const {
  return node == nullptr ? 0 : node->depth();
}

PrefixNode* PrefixTree::covering(PrefixNode* node, int64_t num_tokens) const {
  if (num_tokens <= 0) return nullptr;
  HEDDLE_CHECK_LE(num_tokens, depth(node));
  while (node->begin >= num_tokens) node = node->parent;
  return node;
}

const PrefixNode* PrefixTree::parent(const PrefixNode* node) const {
  return node->parent->is_root() ? nullptr : node->parent;
}

int32_t PrefixTree::state_slot(const PrefixNode* node) const {
  return node == nullptr ? 0 : node->state.slot;
}

void PrefixTree::append_pages(const PrefixNode* node, int64_t num_tokens,
                              std::vector<int32_t>& pages) const {
  if (num_tokens == 0) return;
  HEDDLE_CHECK(node != nullptr);
  HEDDLE_CHECK_LT(node->begin, num_tokens);
  HEDDLE_CHECK_LE(num_tokens, node->depth());
  int64_t missing = pages_.pages_for(num_tokens);  // indices from here on are filled in
  const size_t offset = pages.size();
  pages.resize(offset + static_cast<size_t>(missing));
  for (; missing > 0; node = node->parent) {
    HEDDLE_CHECK(node != nullptr);
    for (int64_t index = std::min(missing, node->end_page()); index-- > node->first_page;) {
      pages[offset + static_cast<size_t>(index)] =
          node->pages[static_cast<size_t>(index - node->first_page)].id;
    }
    if (!node->pages.empty()) missing = std::min(missing, node->first_page);
  }
}

PrefixLock PrefixTree::lock(PrefixNode* node, bool state) {
  if (node == nullptr) return {};
  const PrefixLock lock{.node = node, .holds_state = state && node->has_state()};
  if (lock.holds_state) {
    check_state(*node);
    if (node->state_locks++ == 0) --stats_.evictable_states;
  }
  for (PrefixNode* above = node; !above->is_root(); above = above->parent) {
    if (above->locks++ == 0) stats_.evictable_pages -= above->num_owned_pages();
  }
  place(*node);
  return lock;
}

void PrefixTree::release_state(PrefixLock& lock) {
  if (!lock.holds_state) return;
  lock.holds_state = false;
  HEDDLE_CHECK(lock.node->state_locks > 0);
  if (--lock.node->state_locks == 0) ++stats_.evictable_states;
  place(*lock.node);
}

void PrefixTree::unlock(PrefixLock& lock) {
  if (lock.node == nullptr) return;
  release_state(lock);
  PrefixNode* node = std::exchange(lock, {}).node;
  for (PrefixNode* above = node; !above->is_root(); above = above->parent) {
    HEDDLE_CHECK(above->locks > 0);
    if (--above->locks == 0) stats_.evictable_pages += above->num_owned_pages();
  }
  settle_path(node, true);
}

void PrefixTree::touch(PrefixNode* node) {
  if (node == nullptr) return;
  ++clock_;
  for (PrefixNode* above = node; !above->is_root(); above = above->parent) {
    above->kv_used = clock_;
    above->kv_uses.add(clock_, score_.half_life());
  }
  if (node->has_state()) {
    ++node->state.num_uses;
    set_middle(*node, false);
    node->state_uses.add(clock_, score_.half_life());
  }
  place(*node);
}

// `hash` is that of the upper half's end.
PrefixNode& PrefixTree::split(PrefixNode& node, int64_t length, const request::PrefixHash& hash) {
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
  upper->kv_used = clock_;

  std::unique_ptr<PrefixNode>& link = *node.parent->child_position(node.tokens.front());
  const int64_t num_upper = std::clamp<int64_t>(pages_.pages_for(end) - node.first_page, 0,
                                                static_cast<int64_t>(node.pages.size()));
  upper->pages.assign(node.pages.begin(), node.pages.begin() + num_upper);
  node.pages.erase(node.pages.begin(), node.pages.begin() + num_upper);
  node.first_page += num_upper;
  node.tokens.erase(node.tokens.begin(), node.tokens.begin() + length);
  node.begin = end;
  node.kv_used = clock_;  // it is newer than the half above it

  PrefixNode& result = *upper;
  std::swap(link, upper);
  node.parent = &result;
  result.children.push_back(std::move(upper));
  ++stats_.num_nodes;
  place(node);
  return result;
}

PrefixNode& PrefixTree::add_leaf(PrefixNode& parent, const PrefixInsertion& insertion,
                                 const request::PrefixHash& hash) {
  auto made = std::make_unique<PrefixNode>();
  PrefixNode& leaf = *made;
  leaf.parent = &parent;
  leaf.serial = next_serial_++;
  leaf.begin = parent.depth();
  leaf.tokens.assign(insertion.tokens.begin() + leaf.begin, insertion.tokens.end());
  leaf.hash = hash;
  leaf.first_page = leaf.begin / pages_.page_size();
  if (parent.is_leaf() && parent.has_state()) {
    // The conversation goes on: what is known about its being taken up again moves to its new end.
    leaf.state_uses = parent.state_uses;
    parent.state_uses.count = 1;
  }
  stats_.num_tokens += static_cast<int64_t>(leaf.tokens.size());
  ++stats_.num_nodes;

  if (leaf.begin % pages_.page_size() != 0) {
    const int32_t page = insertion.pages[static_cast<size_t>(leaf.first_page)];
    if (pages_.ids().owner(page) == Owner::kTree) {
      // The sequence writes on in a page that it gave to the path before.
      const auto has_page = [&](const PrefixNode& node) {
        return node.first_page <= leaf.first_page && leaf.first_page < node.end_page();
      };
      const auto page_of = [&](const PrefixNode& node) {
        return node.pages[static_cast<size_t>(leaf.first_page - node.first_page)];
      };
      const PrefixNode* above = &parent;
      while (above != nullptr && !has_page(*above)) above = above->parent;
      HEDDLE_CHECK(above != nullptr);
      if (page_of(*above).id != page) {
        while (above != nullptr && !(has_page(*above) && page_of(*above).id == page)) {
          above = above->parent;
        }
        HEDDLE_CHECK(above != nullptr);
        leaf.pages.push_back({page, pages_.ids().generation(page), false});
        ++shared_pages_[page];
      } else {
        ++leaf.first_page;
      }
    }
  }
  const int64_t end = pages_.pages_for(leaf.depth());
  leaf.pages.reserve(static_cast<size_t>(end - leaf.first_page));
  for (int64_t index = leaf.end_page(); index < end; ++index) {
    const int32_t page = insertion.pages[static_cast<size_t>(index)];
    pages_.ids().move(page, Owner::kRequest, Owner::kTree);
    leaf.pages.push_back({page, pages_.ids().generation(page), true});
  }
  count_pages(leaf, leaf.num_owned_pages());
  parent.children.insert(parent.child_position(leaf.tokens.front()), std::move(made));
  return leaf;
}

bool PrefixTree::attach_state(PrefixNode& node, const PrefixInsertion& insertion) {
  if (node.has_state()) {
    check_state(node);
    ++node.state.num_uses;
    if (!insertion.middle) set_middle(node, false);
    node.state_uses.add(clock_, score_.half_life());
    const bool adds_hidden = insertion.keeps_hidden && !node.state.keeps_hidden;
    if (!adds_hidden || node.state_locks > 0) return false;
    states_.release(node.state.slot);
  } else {
    ++stats_.states;
    ++stats_.evictable_states;
    ghosts_.remove(node.hash);
    node.state.num_uses = 1;
    set_middle(node, insertion.middle);
    node.state_uses.begin_at(clock_, score_.half_life());
  }
  states_.ids().move(insertion.state_slot, Owner::kRequest, Owner::kTree);
  node.state.slot = insertion.state_slot;
  node.state.generation = states_.ids().generation(insertion.state_slot);
  node.state.keeps_hidden = insertion.keeps_hidden;
  return true;
}

PrefixInserted PrefixTree::insert(const PrefixInsertion& insertion) {
  const auto num_tokens = static_cast<int64_t>(insertion.tokens.size());
  if (num_tokens == 0) return {};
  HEDDLE_CHECK_GE(static_cast<int64_t>(insertion.pages.size()), pages_.pages_for(num_tokens));
  HEDDLE_CHECK_EQ(insertion.state_slot != 0, options_.needs_state);
  if (options_.needs_state) {
    HEDDLE_CHECK_EQ(states_.label(insertion.state_slot), num_tokens);
    HEDDLE_CHECK(states_.ids().owner(insertion.state_slot) == Owner::kRequest);
  }

  const auto hash_of = [&](int64_t count) {
    return insertion.hashes.of(insertion.tokens.first(static_cast<size_t>(count)));
  };

  ++clock_;
  PrefixNode* node = &make_root(insertion.name_space);
  HEDDLE_CHECK_EQ(insertion.hashes.of_blocks(0), node->hash.all);
  while (node->depth() < num_tokens) {
    const auto rest = insertion.tokens.subspan(static_cast<size_t>(node->depth()));
    PrefixNode* child = node->find_child(rest.front());
    if (child == nullptr) break;
    const int64_t length = shared_prefix_length(child->tokens, rest);
    const bool whole = length == std::ssize(child->tokens);
    node = whole ? child : &split(*child, length, hash_of(child->begin + length));
  }

  PrefixInserted inserted{.node = node, .known_tokens = node->depth()};
  if (node->depth() < num_tokens) inserted.node = &add_leaf(*node, insertion, hash_of(num_tokens));
  if (options_.needs_state) inserted.state_taken = attach_state(*inserted.node, insertion);
  for (PrefixNode* above = inserted.node; !above->is_root(); above = above->parent) {
    above->kv_used = clock_;
    if (above->kv_uses.count == 0) above->kv_uses.add(clock_, score_.half_life());
  }
  place(*inserted.node);
  if (inserted.node != node && !node->is_root()) place(*node);
  if (inserted.state_taken) place_states_below(*inserted.node);
  if (inserted.state_taken || inserted.node != node) ++epoch_;
  return inserted;
}

uint64_t PrefixTree::epoch() const { return epoch_; }

PrefixTreeStats PrefixTree::stats() const { return stats_; }

void PrefixTree::count_pages(const PrefixNode& node, int64_t pages) {
  stats_.pages += pages;
  if (node.locks == 0) stats_.evictable_pages += pages;
}

void PrefixTree::place(PrefixNode& node) {
  std::optional<VictimKey> leaf;
  std::optional<VictimKey> state;
  if (node.is_leaf() && node.locks == 0) leaf = score_.leaf_key(node);
  if (node.has_state() && node.state_locks == 0) state = score_.state_key(node);
  leaves_.update(node, node.kv_place, leaf);
  state_order_.update(node, node.state_place, state);
  std::optional<VictimKey> age;
  if (state && node.state.middle) {
    const uint64_t tick = node.state_uses.tick;
    age = VictimKey{static_cast<double>(tick), tick, node.serial};
  }
  middle_states_.update(node, node.age_place, age);
}

void PrefixTree::set_middle(PrefixNode& node, bool middle) {
  if (node.state.middle == middle) return;
  node.state.middle = middle;
  stats_.middle_states += middle ? 1 : -1;
  place(node);
}

void PrefixTree::place_states_below(PrefixNode& node) {
  std::vector<PrefixNode*> pending{&node};
  while (!pending.empty()) {
    PrefixNode* above = pending.back();
    pending.pop_back();
    for (const auto& child : above->children) {
      if (child->has_state()) {
        place(*child);
      } else {
        pending.push_back(child.get());
      }
    }
  }
}

std::string PrefixTree::to_string() const {
  std::string text;

  struct Line {
    const PrefixNode* node;
    int indent;
  };

  std::vector<Line> pending;
  for (const auto& [name, root] : roots_) {
    if (!name.empty()) text += name + ":\n";
    pending.push_back({root.get(), -2});
    while (!pending.empty()) {
      const auto [node, indent] = pending.back();
      pending.pop_back();
      if (!node->is_root()) {
        text += fmt::format("{:{}}[{},{})", "", indent, node->begin, node->depth());
        if (node->has_state()) text += fmt::format("@{}", states_.label(node->state.slot));
        text += '\n';
      }
      for (size_t i = node->children.size(); i-- > 0;) {
        pending.push_back({node->children[i].get(), indent + 2});
      }
    }
  }
  return text;
}

}  // namespace heddle::cache
