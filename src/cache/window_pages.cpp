// SPDX-License-Identifier: Apache-2.0
#include "cache/window_pages.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::cache {

WindowPages::WindowPages(const PageWindow& sizes, int64_t page_size, int64_t max_sequences,
                         std::string name)
    : sizes_(sizes),
      page_size_(page_size),
      ids_(std::move(name), sizes.num_pages),
      states_(static_cast<size_t>(sizes.num_pages) + 1) {
  HEDDLE_CHECK_GE(sizes_.window, 1);
  HEDDLE_CHECK_GE(max_sequences, 1);
  num_claimed_ = max_sequences * per_sequence();
  HEDDLE_CHECK_LE(num_claimed_, sizes_.num_pages);
}

std::vector<WindowPages> WindowPages::of(const PoolSizes& sizes) {
  std::vector<WindowPages> all;
  for (const PageWindow& window : sizes.windows) {
    all.emplace_back(window, sizes.page_size, sizes.max_sequences,
                     fmt::format("page of table {}", all.size() + 1));
  }
  return all;
}

// ---- The tree ----

PageRef WindowPages::adopt(int32_t id) {
  ids_.move(id, Owner::kRequest, Owner::kTree);
  HEDDLE_CHECK_EQ(state(id).holders, 0);
  state(id).holders = 1;
  state(id).resumed = false;
  return {.id = id, .generation = ids_.generation(id)};
}

bool WindowPages::has(const PageRef& page) const {
  return page.id != 0 && ids_.owner(page.id) == Owner::kTree &&
         ids_.generation(page.id) == page.generation;
}

void WindowPages::drop(PageRef& page) {
  if (has(page)) free_page(page.id);
  page = {};
}

void WindowPages::free_page(int32_t id) {
  HEDDLE_CHECK_EQ(state(id).holders, 0);
  remove(id);
  ids_.free_one(id);
}

// ---- Sequences ----

void WindowPages::count(int64_t num_held_before, int64_t num_held_now) {
  num_claimed_ +=
      std::max(num_held_now, per_sequence()) - std::max(num_held_before, per_sequence());
}

void WindowPages::begin(PinnedWindow& pinned, int64_t first, int64_t max_pages) {
  HEDDLE_CHECK(pinned.pages.empty() && pinned.copy.from == 0);
  pinned.pages.reserve(static_cast<size_t>(max_pages));
  pinned.pages.assign(static_cast<size_t>(first), 0);
  pinned.first = first;
}

void WindowPages::keep_tree_page(const PageRef& page) {
  HEDDLE_CHECK(has(page));
  State& held = state(page.id);
  if (held.holders++ == 0) remove(page.id);
  held.resumed = true;
}

void WindowPages::share(PinnedWindow& pinned, const PageRef& page) {
  keep_tree_page(page);
  pinned.pages.push_back(page.id);
  count(pinned.num_pinned() - 1, pinned.num_pinned());
}

void WindowPages::begin_copy(PinnedWindow& pinned, const PageRef& page) {
  keep_tree_page(page);
  pinned.copy.from = page.id;
  count(pinned.num_pinned() - 1, pinned.num_pinned());
}

void WindowPages::end_copy(PinnedWindow& pinned) {
  if (pinned.copy.from == 0) return;
  let_go(std::exchange(pinned.copy, {}).from, true);
  count(pinned.num_pinned() + 1, pinned.num_pinned());
}

int64_t WindowPages::room(int64_t num_pinned) const {
  const int64_t claimed_by_others = num_claimed_ - std::max(num_pinned, per_sequence());
  return sizes_.num_pages - claimed_by_others - num_pinned;
}

bool WindowPages::grow(PinnedWindow& pinned, int64_t num_pages) {
  const int64_t missing = num_pages - static_cast<int64_t>(pinned.pages.size());
  if (missing <= 0) return true;
  if (!can_grow(pinned, num_pages)) return false;
  while (ids_.num_free() < missing) evict_one();
  HEDDLE_CHECK(ids_.allocate(missing, pinned.pages));
  count(pinned.num_pinned() - missing, pinned.num_pinned());
  return true;
}

void WindowPages::slide(PinnedWindow& pinned, int64_t first, int64_t first_end, int64_t end_end) {
  const int64_t before = pinned.num_pinned();
  for (; pinned.first < first; ++pinned.first) {
    const bool is_end = pinned.first >= first_end && pinned.first < end_end;
    let_go(pinned.pages[static_cast<size_t>(pinned.first)], is_end);
  }
  count(before, pinned.num_pinned());
}

void WindowPages::end(PinnedWindow& pinned) {
  end_copy(pinned);
  slide(pinned, static_cast<int64_t>(pinned.pages.size()), 0,
        static_cast<int64_t>(pinned.pages.size()));
  pinned.pages.clear();
  pinned.first = 0;
}

void WindowPages::let_go(int32_t id, bool is_end) {
  if (ids_.owner(id) == Owner::kRequest) return ids_.free_one(id);
  State& held = state(id);
  HEDDLE_CHECK(held.holders > 0);
  if (--held.holders == 0) append(id, is_end || held.resumed ? List::kEnds : List::kPassed);
}

// ---- Pages that no sequence pins ----

void WindowPages::append(int32_t id, List list) {
  State& added = state(id);
  Ring& members = ring(list);
  added.list = list;
  added.next = 0;
  added.previous = members.last;
  (members.last != 0 ? state(members.last).next : members.first) = id;
  members.last = id;
  ++num_evictable_;
}

void WindowPages::remove(int32_t id) {
  State& removed = state(id);
  HEDDLE_CHECK(removed.list != List::kNone);
  Ring& members = ring(removed.list);
  (removed.previous != 0 ? state(removed.previous).next : members.first) = removed.next;
  (removed.next != 0 ? state(removed.next).previous : members.last) = removed.previous;
  removed.list = List::kNone;
  --num_evictable_;
}

void WindowPages::evict_one() {
  const int32_t passed = ring(List::kPassed).first;
  free_page(passed != 0 ? passed : ring(List::kEnds).first);
  ++num_evicted_;
}

void WindowPages::clear() {
  for (const Ring& members : rings_) {
    while (members.first != 0) free_page(members.first);
  }
}

void WindowPages::check_invariants() const {
  ids_.check_invariants();
  HEDDLE_CHECK_LE(num_claimed_, sizes_.num_pages);
  int64_t num_listed = 0;
  for (const List list : {List::kPassed, List::kEnds}) {
    const Ring& members = rings_[list == List::kPassed ? 0 : 1];
    int32_t previous = 0;
    for (int32_t id = members.first; id != 0;) {
      const State& one = states_[static_cast<size_t>(id)];
      HEDDLE_CHECK(one.list == list);
      HEDDLE_CHECK_EQ(one.previous, previous);
      ++num_listed;
      previous = std::exchange(id, one.next);
    }
    HEDDLE_CHECK_EQ(members.last, previous);
  }
  HEDDLE_CHECK_EQ(num_listed, num_evictable_);
  for (int32_t id = 1; id <= ids_.size(); ++id) {
    const State& one = states_[static_cast<size_t>(id)];
    const bool is_tree = ids_.owner(id) == Owner::kTree;
    HEDDLE_CHECK_EQ(one.list != List::kNone, is_tree && one.holders == 0);
    if (!is_tree) HEDDLE_CHECK_EQ(one.holders, 0);
  }
}

}  // namespace heddle::cache
