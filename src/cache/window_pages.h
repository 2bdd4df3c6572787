// SPDX-License-Identifier: Apache-2.0
// WindowPages: the pages of one page table with a window (PageWindow): which sequence pins which,
// which the prefix tree keeps, and which the next sequence may take.
//
// A running sequence pins the pages from the first token that its next one sees up to the last one
// it has planned. As it advances it lets go of those behind its window: its own become free, the
// tree's stay until their room is needed, so that others can still resume there. The tree's pages
// that no sequence pins are given up one by one: first those that a sequence slid past, then ends:
// the last window of a prompt or of a sequence, and pages that a sequence has resumed from. Within
// each of the two, those let go first go first.
//
// The tree refers to a page by its id and generation. No call reports that a page was given up:
// has() is false for it from then on, exactly.
//
// Reserve:    every one of max_sequences sequences can always pin per_sequence() pages, which
//             is enough to decode and to prefill a page at a time. Prompts may take more from what
//             these reserves leave. So a decode step never lacks a page once the prompt's last
//             step has been confirmed, and nothing is ever retracted for one.
// Ownership:  Owner::kRequest: one sequence pins it. Owner::kTree: the tree has it; any number of
//             sequences may pin it.
// Threading:  confined to the engine thread.
// Invariants: check_invariants(); check_ownership() proves the pins of all sequences together.
// Cost:       O(1) per page, no heap use but in begin().
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
  std::vector<int32_t> pages;  // page of token t is pages[t / page_size], from `first` on; those
                               // before were let go and may belong to another
  int64_t first = 0;
  ops::IdCopy copy;  // `from` is pinned beside them until the first step has copied it; 0: none

  [[nodiscard]] int64_t num_pinned() const {
    return static_cast<int64_t>(pages.size()) - first + (copy.from != 0 ? 1 : 0);
  }
};

class WindowPages {
 public:
  // There are pages for the reserve (checked). `name` is that of the ids in messages.
  WindowPages(const PageWindow& sizes, int64_t page_size, int64_t max_sequences,
              std::string name = "page with a window");
  WindowPages(const WindowPages&) = delete;
  WindowPages& operator=(const WindowPages&) = delete;
  WindowPages(WindowPages&&) = default;
  WindowPages& operator=(WindowPages&&) = default;

  // The pages of page tables 1 and up.
  [[nodiscard]] static std::vector<WindowPages> of(const PoolSizes& sizes);

  // Index of the first page that the token at `position` reads.
  [[nodiscard]] int64_t first_page(int64_t position) const {
    return sizes_.first_page(position, page_size_);
  }

  // ---- The tree ----

  // Gives the tree a page that one sequence pins, which pins it as before.
  [[nodiscard]] PageRef adopt(int32_t id);

  // Whether the tree still has the page.
  [[nodiscard]] bool has(const PageRef& page) const;

  // Frees a page with its node, if the tree has it; no sequence pins it (checked). Leaves it empty.
  void drop(PageRef& page);

  // ---- Sequences ----

  // The list, empty before, begins at page `first` and has room for `max_pages` indices.
  void begin(PinnedWindow& pinned, int64_t first, int64_t max_pages);

  // Adds a page that the tree has (checked): a sequence resumes from it.
  void share(PinnedWindow& pinned, const PageRef& page);

  // Pins a page of the tree (checked) until end_copy(), in addition to the list's pages.
  void begin_copy(PinnedWindow& pinned, const PageRef& page);
  void end_copy(PinnedWindow& pinned);

  // How many pages a sequence that pins `num_pinned` can take now.
  [[nodiscard]] int64_t room(int64_t num_pinned) const;

  // Whether the list could have `num_pages` entries.
  [[nodiscard]] bool can_grow(const PinnedWindow& pinned, int64_t num_pages) const {
    return num_pages - std::ssize(pinned.pages) <= std::max<int64_t>(room(pinned.num_pinned()), 0);
  }

  // Takes pages until the list has `num_pages` entries, or nothing and false. Evicts.
  [[nodiscard]] bool grow(PinnedWindow& pinned, int64_t num_pages);

  // Lets go of the pages before index `first`. Those from `first_end` to `end_end` are an end, the
  // last window of the prompt; others were slid past.
  void slide(PinnedWindow& pinned, int64_t first, int64_t first_end, int64_t end_end);

  // Lets go of all pages; they are an end.
  void end(PinnedWindow& pinned);

  // Pages that one sequence needs to advance, two steps in flight included.
  [[nodiscard]] int64_t per_sequence() const { return sizes_.per_sequence(page_size_); }

  [[nodiscard]] const IdPool& ids() const { return ids_; }

  // Pages of the tree that no sequence pins.
  [[nodiscard]] int64_t num_evictable() const { return num_evictable_; }

  [[nodiscard]] int64_t num_evicted() const { return num_evicted_; }  // since the start

  // How many sequences pin a page of the tree.
  [[nodiscard]] int64_t holders(int32_t id) const {
    return states_[static_cast<size_t>(id)].holders;
  }

  // Gives up everything that no sequence pins; not counted as evicted.
  void clear();

  // Proves that lists and counters agree with the owners of the ids, or aborts. Cost: O(ids).
  void check_invariants() const;

 private:
  // The eviction list of a page of the tree that no sequence pins.
  enum class List : uint8_t { kNone, kPassed, kEnds };

  struct State {
    int64_t holders = 0;  // sequences that pin the page
    int32_t next = 0;     // in its list
    int32_t previous = 0;
    List list = List::kNone;
    bool resumed = false;  // a sequence resumed from it
  };

  // A ring through its head, the next to be evicted first.
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
  std::vector<State> states_;  // [ids + 1], by id
  std::array<Ring, 2> rings_;  // kPassed, kEnds
  int64_t num_evictable_ = 0;
  int64_t num_evicted_ = 0;
  // The sum over all sequences of what each pins or may pin at any time, whichever is more. A
  // page that several pin counts for each: one of them may let it go and then need another.
  int64_t num_claimed_ = 0;
};

}  // namespace heddle::cache
