// SPDX-License-Identifier: Apache-2.0
// MemoryBudget: one budget of bytes for two pools, KV pages and state slots, that have more ids
// than memory. It counts which ids hold memory and says whose memory goes back so that others may
// take some; the border between the pools moves with the load.
//
// An id is uncommitted (it holds no memory), in use, or idle: free, but still holding what its last
// user committed. Committing an id that is idle costs nothing. Where one is uncommitted and the
// budget is spent, idle ids lose their memory, those of the other pool first, those idle longest
// before the rest; the caller hands them to the device in the same plan (BatchPlan::unused_pages,
// unused_state_slots), whose head gives memory back before anything else happens.
//
// Threading:  confined to the engine thread; indices only, no memory is touched.
// Invariants: bytes of all ids in use and idle <= shared_bytes.
// Cost:       O(1) per id, no heap use after construction except in `released`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::cache {

// Ids whose memory goes back to the system.
struct ReleasedIds {
  std::vector<int32_t> pages;
  std::vector<int32_t> slots;
};

class MemoryBudget {
 public:
  struct Options {
    int64_t num_pages = 0;  // ids run from 1
    int64_t num_slots = 0;
    int64_t page_bytes = 0;  // 0: pages cost nothing
    int64_t slot_bytes = 0;
    int64_t shared_bytes = 0;  // 0: all ids fit at once
  };

  // Numbers are not negative (checked). Nothing is committed.
  explicit MemoryBudget(const Options& options);

  // Whether so many more pages, or slots, can be in use at once with what is in use now. Idle ids
  // are never in the way.
  [[nodiscard]] bool can_commit_pages(int64_t count) const {
    return can_commit(count * options_.page_bytes);
  }

  [[nodiscard]] bool can_commit_slots(int64_t count) const {
    return can_commit(count * options_.slot_bytes);
  }

  // The ids, which are not in use (checked), are in use from now on. Appends to `released` those
  // that lose their memory for it; false, and nothing changes, if the ids do not fit.
  [[nodiscard]] bool commit_pages(std::span<const int32_t> pages, ReleasedIds& released) {
    return commit(pages_, pages, released);
  }

  [[nodiscard]] bool commit_slots(std::span<const int32_t> slots, ReleasedIds& released) {
    return commit(slots_, slots, released);
  }

  // The ids, which are in use (checked), are idle from now on.
  void free_pages(std::span<const int32_t> pages) { make_idle(pages_, pages); }

  void free_slots(std::span<const int32_t> slots) { make_idle(slots_, slots); }

  [[nodiscard]] int64_t bytes_in_use() const {
    return pages_.bytes_in_use() + slots_.bytes_in_use();
  }

  // In use and idle: what the pools hold of the system's memory.
  [[nodiscard]] int64_t committed_bytes() const {
    return bytes_in_use() + pages_.bytes_idle() + slots_.bytes_idle();
  }

  [[nodiscard]] bool page_committed(int32_t page) const { return pages_.committed(page); }

  [[nodiscard]] bool slot_committed(int32_t slot) const { return slots_.committed(slot); }

  // Proves the invariants or aborts. Cost: O(ids), for tests and idle time.
  void check_invariants() const;

 private:
  enum class State : uint8_t { kUncommitted, kInUse, kIdle };

  // The ids of one pool; the idle ones in a ring, linked through id 0, the longest idle first.
  struct Ids {
    int64_t bytes_each = 0;
    int64_t num_in_use = 0;
    int64_t num_idle = 0;
    std::vector<State> states;
    std::vector<int32_t> next;
    std::vector<int32_t> previous;

    [[nodiscard]] int64_t bytes_in_use() const { return num_in_use * bytes_each; }

    [[nodiscard]] int64_t bytes_idle() const { return num_idle * bytes_each; }

    [[nodiscard]] bool committed(int32_t id) const {
      return states[static_cast<size_t>(id)] != State::kUncommitted;
    }

    void append_idle(int32_t id);
    void remove_idle(int32_t id);
  };

  static Ids make_ids(int64_t count, int64_t bytes_each);
  static void make_idle(Ids& ids, std::span<const int32_t> freed);
  static void check(const Ids& ids);

  [[nodiscard]] bool can_commit(int64_t bytes) const {
    return options_.shared_bytes == 0 || bytes <= options_.shared_bytes - bytes_in_use();
  }

  [[nodiscard]] bool commit(Ids& ids, std::span<const int32_t> wanted, ReleasedIds& released);
  static bool release_one(Ids& ids, std::vector<int32_t>& released);

  Options options_;
  Ids pages_;
  Ids slots_;
};

}  // namespace heddle::cache
