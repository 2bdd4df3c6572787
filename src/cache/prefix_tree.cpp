// SPDX-License-Identifier: Apache-2.0
#include "cache/prefix_tree.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::cache {
namespace {

// Middle states may displace others up to a quarter of all states.
constexpr int64_t kMiddleShare = 4;

// Number of states kept when the pools are full, assuming one state per 256 tokens in pages.
// Without states: the number of edges of eight pages each.
int64_t capacity(const PrefixTreeOptions& options, const PageAllocator& pages,
                 const StateAllocator& states) {
  if (!options.needs_state) return pages.num_pages() / 8;
  const int64_t in_pages = pages.num_pages() * pages.page_size() / 256;
  const int64_t count = std::min(states.num_slots(), in_pages);
  return options.expected_states > 0 ? std::min(count, options.expected_states) : count;
}

// How many evicted prefixes are remembered: the states that fill the pools four times, or without
// states one page boundary for every page.
int64_t num_ghosts(const PrefixTreeOptions& options, const PageAllocator& pages,
                   const StateAllocator& states) {
  return options.needs_state ? 4 * capacity(options, pages, states) : pages.num_pages();
}

// Ticks after which a use counts half: about two fillings of the pool.
double half_life(const PrefixTreeOptions& options, const PageAllocator& pages,
                 const StateAllocator& states) {
  return static_cast<double>(std::max<int64_t>(2 * capacity(options, pages, states), 64));
}

int64_t max_middle_states(const PrefixTreeOptions& options, const StateAllocator& states) {
  const int64_t most = states.num_slots() / kMiddleShare;
  return options.expected_states > 0 ? std::min(most, options.expected_states / kMiddleShare)
                                     : most;
}

}  // namespace

PrefixTree::PrefixTree(const PrefixTreeOptions& options, PageAllocator& pages,
                       std::span<WindowPages> windows, StateAllocator& states)
    : options_(options),
      pages_(pages),
      windows_(windows),
      slots_(states),
      radix_(pages, windows),
      states_(states),
      queue_(options, half_life(options, pages, states)),
      ghosts_(num_ghosts(options, pages, states)),
      half_life_(half_life(options, pages, states)),
      max_middle_states_(max_middle_states(options, states)) {}

// ---- Reading ----

PrefixMatch PrefixTree::match(std::span<const TokenId> tokens, std::string_view name_space,
                              int64_t max_usable) const {
  PrefixMatch match;
  const auto num_tokens = static_cast<int64_t>(tokens.size());
  PrefixNode* node = radix_.find_root(name_space);
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
    match.usable_tokens = match.known_tokens = depth(match.resume);
    if (!windows_.empty()) limit_to_windows(match);
    if (match.resume != nullptr) states_.check(*match.resume);
    if (match.exact != nullptr) states_.check(*match.exact);
    return match;
  }
  const int64_t usable = std::max<int64_t>(std::min(match.kv_tokens, max_usable), 0);
  match.usable_tokens = match.known_tokens = usable - usable % pages_.page_size();
  if (!windows_.empty()) limit_to_windows(match);
  if (match.usable_tokens > 0) {
    match.resume = match.kv_node;
    while (match.resume->begin >= match.usable_tokens) match.resume = match.resume->parent;
  }
  return match;
}

// Shortens the match to a prefix for which all tables with a window have the pages.
void PrefixTree::limit_to_windows(PrefixMatch& match) const {
  if (!options_.needs_state) {
    match.usable_tokens =
        match.usable_tokens == 0
            ? 0
            : radix_.deepest_with_windows(covering(match.kv_node, match.usable_tokens),
                                          match.usable_tokens);
    return;
  }
  if (match.exact != nullptr && !radix_.has_whole_windows(*match.exact)) match.exact = nullptr;
  while (match.resume != nullptr && !radix_.has_whole_windows(*match.resume)) {
    const PrefixNode* const above = state_above(*match.resume);
    match.resume = above == nullptr ? nullptr : covering(match.resume, above->depth());
  }
  match.usable_tokens = depth(match.resume);
}

int64_t PrefixTree::usable_without_eviction(std::span<const TokenId> tokens,
                                            const request::PrefixHashes& hashes,
                                            const PrefixMatch& match, int64_t max_usable) const {
  const int64_t most = std::min(max_usable, std::ssize(tokens));
  return ghosts_.deepest(tokens.first(static_cast<size_t>(std::max<int64_t>(most, 0))), hashes,
                         std::max(match.known_tokens, match.usable_tokens));
}

int64_t PrefixTree::depth(const PrefixNode* node) const {
  return node == nullptr ? 0 : node->depth();
}

int32_t PrefixTree::state_slot(const PrefixNode* node) const {
  return node == nullptr ? 0 : node->state.slot;
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

// ---- Locks and uses ----

PrefixLock PrefixTree::lock(PrefixNode* node, bool state) {
  if (node == nullptr) return {};
  const PrefixLock lock{.node = node, .locks_state = state && node->has_state()};
  if (lock.locks_state) states_.lock(*node);
  radix_.lock(*node);
  queue_.update(*node);
  return lock;
}

void PrefixTree::release_state(PrefixLock& lock) {
  if (!lock.locks_state) return;
  lock.locks_state = false;
  states_.unlock(*lock.node);
  queue_.update(*lock.node);
}

void PrefixTree::unlock(PrefixLock& lock) {
  if (lock.node == nullptr) return;
  release_state(lock);
  PrefixNode* node = std::exchange(lock, {}).node;
  radix_.unlock(*node);
  tidy_path(node, true);
}

void PrefixTree::move(PrefixLock& lock, PrefixNode* node) {
  PrefixNode* const from = lock.node;
  const PrefixNode* above = node;
  while (above != from && !above->is_root() && above->depth() > depth(from)) above = above->parent;
  if (from == nullptr || above != from) {
    const PrefixLock moved = this->lock(node, false);
    unlock(lock);
    lock = moved;
    return;
  }
  release_state(lock);
  radix_.move_lock_down(*node, *from);
  lock.node = node;
  queue_.update(*node);
  if (from != node) tidy_path(from, false);
}

void PrefixTree::touch(PrefixNode* node) {
  if (node == nullptr) return;
  ++clock_;
  for (PrefixNode* above = node; !above->is_root(); above = above->parent) {
    above->kv_used = clock_;
    above->kv_uses.add(clock_, half_life_);
  }
  if (node->has_state()) {
    ++node->state.num_uses;
    states_.set_middle(*node, false);
    node->state_uses.add(clock_, half_life_);
  }
  queue_.update(*node);
}

// ---- Inserting ----

PrefixNode& PrefixTree::split(PrefixNode& node, int64_t length, const request::PrefixHash& hash) {
  PrefixNode& upper = radix_.split(node, length, hash);
  upper.kv_used = clock_;
  node.kv_used = clock_;
  queue_.update(node);
  return upper;
}

PrefixNode& PrefixTree::add_leaf(PrefixNode& parent, const PrefixInsertion& insertion,
                                 const request::PrefixHash& hash) {
  const bool continues = parent.is_leaf() && parent.has_state();
  PrefixNode& leaf =
      radix_.add_leaf(parent, insertion.tokens, insertion.pages, insertion.windows, hash);
  if (continues) {
    // A conversation continues: its new end inherits the use count of its old end.
    leaf.state_uses = parent.state_uses;
    parent.state_uses.count = 1;
  }
  return leaf;
}

bool PrefixTree::attach_state(PrefixNode& node, const PrefixInsertion& insertion) {
  if (node.has_state()) {
    states_.check(node);
    ++node.state.num_uses;
    if (!insertion.middle) states_.set_middle(node, false);
    node.state_uses.add(clock_, half_life_);
    const bool adds_hidden = insertion.keeps_hidden && !node.state.keeps_hidden;
    if (!adds_hidden || node.state_locks > 0) return false;
    states_.attach(node, insertion.state_slot, insertion.keeps_hidden);
    return true;
  }
  ghosts_.remove(node.hash);
  states_.attach(node, insertion.state_slot, insertion.keeps_hidden);
  states_.set_middle(node, insertion.middle);
  node.state.num_uses = 1;
  node.state_uses.begin_at(clock_, half_life_);
  return true;
}

PrefixInserted PrefixTree::insert(const PrefixInsertion& insertion) {
  const auto num_tokens = static_cast<int64_t>(insertion.tokens.size());
  if (num_tokens == 0) return {};
  HEDDLE_CHECK_GE(static_cast<int64_t>(insertion.pages.size()), pages_.pages_for(num_tokens));
  HEDDLE_CHECK_EQ(insertion.state_slot != 0, options_.needs_state);
  if (options_.needs_state) {
    HEDDLE_CHECK_EQ(slots_.label(insertion.state_slot), num_tokens);
    HEDDLE_CHECK(slots_.ids().owner(insertion.state_slot) == Owner::kRequest);
  }

  const auto hash_of = [&](int64_t count) {
    return insertion.hashes.of(insertion.tokens.first(static_cast<size_t>(count)));
  };

  ++clock_;
  PrefixNode* node = insertion.begins_at;
  if (node != nullptr) {
    HEDDLE_CHECK_LE(node->depth(), num_tokens);
    HEDDLE_CHECK(node->locks > 0 && node->hash == hash_of(node->depth()));
  } else {
    node = &radix_.find_or_add_root(insertion.name_space);
    HEDDLE_CHECK_EQ(insertion.hashes.of_blocks(0), node->hash.all);
  }
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
    if (above->kv_uses.count == 0) above->kv_uses.add(clock_, half_life_);
  }
  radix_.refill_windows(*inserted.node, num_tokens, insertion.windows);
  queue_.update(*inserted.node);
  if (inserted.node != node && !node->is_root()) queue_.update(*node);
  if (inserted.state_taken) queue_.update_states_below(*inserted.node);
  if (inserted.state_taken || inserted.node != node) ++epoch_;
  return inserted;
}

// ---- Evicting ----

void PrefixTree::drop_state(PrefixNode& node) {
  states_.drop(node);
  node.state_uses = {};
}

// Remembers the page boundaries of a leaf without states: a sequence could resume at each of them.
void PrefixTree::remember_boundaries(const PrefixNode& leaf) {
  request::PrefixHash hash = leaf.parent->hash;
  int64_t depth = leaf.begin;
  for (const TokenId token : leaf.tokens) {
    hash = request::extend_hash(hash, depth, token);
    if (++depth % pages_.page_size() == 0) ghosts_.add(hash, depth);
  }
}

// Removes a leaf with its pages and its state. The caller calls tidy() for the nodes above.
void PrefixTree::remove_leaf(PrefixNode& leaf) {
  if (leaf.has_state()) {
    drop_state(leaf);
    ghosts_.add(leaf.hash, leaf.depth());
    ++evicted_states_;
  }
  if (!options_.needs_state) remember_boundaries(leaf);
  evicted_tokens_ += std::ssize(leaf.tokens);
  queue_.remove(leaf);
  radix_.remove_leaf(leaf);
}

void PrefixTree::evict_leaf(PrefixNode& leaf) {
  PrefixNode* parent = leaf.parent;
  remove_leaf(leaf);
  tidy_path(parent, false);
}

// Evicts the node's state, and removes the node if nothing else keeps it.
void PrefixTree::evict_state(PrefixNode& node) {
  drop_state(node);
  ghosts_.add(node.hash, node.depth());
  ++evicted_states_;
  queue_.update(node);
  queue_.update_states_below(node);
  tidy_path(&node, false);
}

// Removes the node if no sequence can resume at it any more, or merges it with its child if neither
// a state nor a fork separates them. Returns whether it did one of these.
bool PrefixTree::tidy(PrefixNode& node) {
  if (options_.needs_state) {
    if (node.is_leaf() && !node.has_state() && node.locks == 0) {
      remove_leaf(node);
      return true;
    }
    if (PrefixNode* joined = radix_.merge_into_child(node)) {
      queue_.update(*joined);
      return true;
    }
  }
  if (node.is_leaf()) states_.set_middle(node, false);  // without nodes below, the state is an end
  queue_.update(node);
  return false;
}

// Calls tidy() from `node` upwards: for the whole path, or until a node does not change.
void PrefixTree::tidy_path(PrefixNode* node, bool whole) {
  while (!node->is_root()) {
    PrefixNode* parent = node->parent;
    if (!tidy(*node) && !whole) return;
    node = parent;
  }
  if (node->is_leaf()) radix_.remove_root(*node);
}

bool PrefixTree::drop_unused_state(PrefixNode* node) {
  if (node == nullptr || !node->has_state() || node->state_locks > 0) return false;
  if (node->state.num_uses > 1 || node->children.size() > 1) return false;
  const request::PrefixHash hash = node->hash;
  const int64_t evicted_states = evicted_states_;
  const int64_t evicted_tokens = evicted_tokens_;
  evict_state(*node);
  evicted_states_ = evicted_states;  // a replaced state does not count as evicted
  evicted_tokens_ = evicted_tokens;
  ghosts_.remove(hash);
  return true;
}

int64_t PrefixTree::evict_pages(int64_t count) {
  const int64_t before = radix_.counts().pages;
  while (before - radix_.counts().pages < count) {
    PrefixNode* leaf = queue_.next_leaf();
    if (leaf == nullptr) break;
    evict_leaf(*leaf);
  }
  return before - radix_.counts().pages;
}

int64_t PrefixTree::evict_states(int64_t count) {
  const int64_t before = states_.counts().states;
  while (before - states_.counts().states < count) {
    PrefixNode* node = queue_.next_state();
    if (node == nullptr) break;
    evict_state(*node);
  }
  return before - states_.counts().states;
}

// Null if there is no state to evict.
PrefixNode* PrefixTree::victim_for_middle(int64_t from, int64_t to, uint64_t since,
                                          int64_t owed) const {
  if (states_.counts().middle_states < max_middle_states_) return queue_.next_state(owed);
  PrefixNode* const oldest = queue_.oldest_middle_state(owed);
  if (oldest != nullptr && oldest->state_uses.tick < since) return oldest;
  if (owed > 0) return nullptr;
  PrefixNode* const node = queue_.next_state();
  if (node == nullptr) return nullptr;
  const double fresh = queue_.score().fresh_middle_score(from, to, clock_);
  return node->state_key->score < fresh ? node : nullptr;
}

bool PrefixTree::evict_state_for_middle(int64_t from, int64_t to, uint64_t since) {
  PrefixNode* const node = victim_for_middle(from, to, since, 0);
  if (node == nullptr) return false;
  evict_state(*node);
  return true;
}

int64_t PrefixTree::evict_bytes(int64_t bytes) {
  const int64_t pages_before = radix_.counts().pages;
  const int64_t states_before = states_.counts().states;
  const auto freed = [&] {
    return (pages_before - radix_.counts().pages) * options_.page_bytes +
           (states_before - states_.counts().states) * options_.state_bytes;
  };
  while (freed() < bytes) {
    const EvictionQueue::Victim victim = queue_.next();
    if (victim.node == nullptr) break;
    if (victim.is_leaf) {
      evict_leaf(*victim.node);
    } else {
      evict_state(*victim.node);
    }
  }
  return freed();
}

void PrefixTree::clear() {
  const int64_t evicted_states = evicted_states_;
  const int64_t evicted_tokens = evicted_tokens_;
  while (PrefixNode* leaf = queue_.next_leaf()) evict_leaf(*leaf);
  while (PrefixNode* node = queue_.next_state()) evict_state(*node);
  for (WindowPages& window : windows_) window.clear();
  ghosts_.clear();
  evicted_states_ = evicted_states;  // clear() does not count as eviction
  evicted_tokens_ = evicted_tokens;
}

// ---- Statistics and proof ----

PrefixTreeStats PrefixTree::stats() const {
  const RadixTree::Counts& nodes = radix_.counts();
  const NodeStates::Counts& states = states_.counts();
  return {.num_nodes = nodes.num_nodes,
          .num_tokens = nodes.num_tokens,
          .pages = nodes.pages,
          .evictable_pages = nodes.evictable_pages,
          .states = states.states,
          .evictable_states = states.evictable_states,
          .middle_states = states.middle_states,
          .evicted_tokens = evicted_tokens_,
          .evicted_states = evicted_states_};
}

std::string PrefixTree::to_string() const {
  std::string text;

  struct Line {
    const PrefixNode* node;
    int indent;
  };

  std::vector<Line> pending;
  for (const auto& [name, root] : radix_.roots()) {
    if (!name.empty()) text += name + ":\n";
    pending.push_back({root.get(), -2});
    while (!pending.empty()) {
      const auto [node, indent] = pending.back();
      pending.pop_back();
      if (!node->is_root()) {
        text += fmt::format("{:{}}[{},{})", "", indent, node->begin, node->depth());
        if (node->has_state()) text += fmt::format("@{}", slots_.label(node->state.slot));
        text += '\n';
      }
      for (size_t i = node->children.size(); i-- > 0;) {
        pending.push_back({node->children[i].get(), indent + 2});
      }
    }
  }
  return text;
}

void PrefixTree::check_invariants(bool idle) const {
  radix_.for_each_node([&](const PrefixNode& node) {
    if (!options_.needs_state) {
      HEDDLE_CHECK(!node.has_state());
    } else if (node.is_leaf() && !node.has_state()) {
      HEDDLE_CHECK_LT(0, node.locks);  // I6: no sequence can resume here, so only a lock keeps the
                                       // node
    }
  });
  radix_.check_invariants(idle);
  states_.check_invariants(radix_);
  queue_.check_invariants(radix_);
}

}  // namespace heddle::cache
