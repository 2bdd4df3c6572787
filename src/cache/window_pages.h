// SPDX-License-Identifier: Apache-2.0
// WindowPages: the pages of one page table with a window (PageWindow): which sequence pins which
// page, which pages the prefix tree keeps, and which may be evicted.
//
// A running sequence pins its pages from the first token that its next one reads to the last
// planned one. As it advances it unpins the pages before its window: pages of its own become free,
// pages of the tree stay until their memory is needed, so that others can resume there. Unpinned
// pages of the tree are evicted one by one: first pages that a sequence slid past, then ends, which
// are the last window of a prompt or of a sequence and pages from which a sequence has resumed.
// Within each of these two lists the page unpinned first is evicted first.
//
// The tree refers to a page by its id and generation. No call reports that a page was evicted;
// has() returns false for it from then on.
//
// Reserve:    each of max_sequences sequences can always pin per_sequence() pages, which is enough
//             to decode and to prefill a page at a time. Prompts may use the pages beyond these
//             reserves. So a decode step never lacks a page once the prompt's last step has been
//             confirmed, and no sequence is retracted for one.
// Ownership:  Owner::kRequest: one sequence pins the page. Owner::kTree: the tree has it; any
//             number of sequences may pin it.
// Threading:  confined to the engine thread.
// Invariants: check_invariants(); check_ownership() checks the pins of all sequences together.
// Cost:       O(1) per page, no heap use except in begin().
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/id_pool.h"
#include "cache/pool_sizes.h"
#include "cache/prefix_node.h"
#include "ops/pool_ids.h"

namespace heddle::cache {

// The pages of a running sequence in a table with a window.
struct PinnedWindow {
  std::vector<int32_t> pages;  // the page of token t is pages[t / page_size]; entries before
                               // `first` are unpinned and may belong to others
  int64_t first = 0;
  ops::IdCopy copy;  // `from` is pinned too until the first step has copied it; 0: no copy

  [[nodiscard]] int64_t num_pinned() const {
    return static_cast<int64_t>(pages.size()) - first + (copy.from != 0 ? 1 : 0);
  }
};

class WindowPages {
 public:
  // There must be enough pages for the reserve (checked). `name` names the ids in messages.
  WindowPages(const PageWindow& sizes, int64_t page_size, int64_t max_sequences,
              std::string name = "page with a window");
  WindowPages(const WindowPages&) = delete;
  WindowPages& operator=(const WindowPages&) = delete;
  WindowPages(WindowPages&&) = default;
  WindowPages& operator=(WindowPages&&) = default;

  // One object for each page table from 1 on.
  [[nodiscard]] static std::vector<WindowPages> of(const PoolSizes& sizes);

  // Index of the first page that the token at `position` reads.
  [[nodiscard]] int64_t first_page(int64_t position) const {
    return sizes_.first_page(position, page_size_);
  }

  // ---- The tree ----

  // Hands the tree a page that one sequence pins; the sequence goes on pinning it.
  [[nodiscard]] PageRef adopt(int32_t id);

  // Whether the tree still has the page.
  [[nodiscard]] bool has(const PageRef& page) const;

  // Frees a page whose node is removed, if the tree still has it, and empties `page`. No sequence
  // may pin it (checked).
  void drop(PageRef& page);

  // ---- Sequences ----

  // Starts the empty list `pinned` at page index `first` and reserves `max_pages` entries.
  void begin(PinnedWindow& pinned, int64_t first, int64_t max_pages);

  // Pins a page that the tree has (checked) and appends it: a sequence resumes from it.
  void share(PinnedWindow& pinned, const PageRef& page);

  // begin_copy() pins a page that the tree has (checked), in addition to the list, until
  // end_copy().
  void begin_copy(PinnedWindow& pinned, const PageRef& page);
  void end_copy(PinnedWindow& pinned);

  // How many more pages a sequence that pins `num_pinned` pages can get now.
  [[nodiscard]] int64_t room(int64_t num_pinned) const;

  // Whether the list can grow to `num_pages` entries.
  [[nodiscard]] bool can_grow(const PinnedWindow& pinned, int64_t num_pages) const {
    return num_pages - std::ssize(pinned.pages) <= std::max<int64_t>(room(pinned.num_pinned()), 0);
  }

  // Allocates pages until the list has `num_pages` entries and evicts as needed. Returns false and
  // changes nothing if that is impossible.
  [[nodiscard]] bool grow(PinnedWindow& pinned, int64_t num_pages);

  // Unpins the pages before index `first`. Pages with indices from `first_end` to below `end_end`,
  // the last window of the prompt, count as an end; the others as slid past.
  void slide(PinnedWindow& pinned, int64_t first, int64_t first_end, int64_t end_end);

  // Unpins all pages; they count as an end.
  void end(PinnedWindow& pinned);

  // Pages that one sequence needs to advance with two steps in flight.
  [[nodiscard]] int64_t per_sequence() const { return sizes_.per_sequence(page_size_); }

  [[nodiscard]] const IdPool& ids() const { return ids_; }

  // Number of pages of the tree that no sequence pins.
  [[nodiscard]] int64_t num_evictable() const { return num_evictable_; }

  // Since the start of the engine.
  [[nodiscard]] int64_t num_evicted() const { return num_evicted_; }

  // Number of sequences that pin a page of the tree.
  [[nodiscard]] int64_t holders(int32_t id) const {
    return states_[static_cast<size_t>(id)].holders;
  }

  // Frees all pages of the tree that no sequence pins; they do not count as evicted.
  void clear();

  // Checks that lists and counters agree with the owners of the ids; aborts if not. Cost: O(ids).
  void check_invariants() const;

 private:
  // The eviction list in which a page of the tree is while no sequence pins it; kNone: in no list.
  enum class List : uint8_t { kNone, kPassed, kEnds };

  struct State {
    int64_t holders = 0;  // number of sequences that pin the page
    int32_t next = 0;     // next page in its list; 0: the last
    int32_t previous = 0;
    List list = List::kNone;
    bool resumed = false;  // a sequence has resumed from the page
  };

  // Both ends of an eviction list; `first` is evicted next.
  struct Ring {
    int32_t first = 0;
    int32_t last = 0;
  };

  [[nodiscard]] State& state(int32_t id) { return states_[static_cast<size_t>(id)]; }

  [[nodiscard]] Ring& ring(List list) { return rings_[list == List::kPassed ? 0 : 1]; }

  void keep_tree_page(const PageRef& page);
  void let_go(int32_t id, bool is_end);
  void append(int32_t id, List list);
  void remove(int32_t id);
  void free_page(int32_t id);
  void evict_one();
  void count(int64_t num_held_before, int64_t num_held_now);

  PageWindow sizes_;
  int64_t page_size_;
  IdPool ids_;
  std::vector<State> states_;  // by page id: [ids + 1]
  std::array<Ring, 2> rings_;  // the eviction lists kPassed and kEnds
  int64_t num_evictable_ = 0;
  int64_t num_evicted_ = 0;
  // Sum over all sequences of the pages that each pins or is guaranteed, whichever is more. A page
  // that several sequences pin counts for each: one of them may unpin it and then need another.
  int64_t num_claimed_ = 0;
};

}  // namespace heddle::cache
