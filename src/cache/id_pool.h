// SPDX-License-Identifier: Apache-2.0
// IdPool: hands out the ids 1..n of equal resources (KV pages, state slots) and records the owner
// of each. It manages indices only; the memory is in a separate pool. Id 0 is never handed out: it
// means "none", for example in unused entries of a page table.
//
// The id freed last is handed out first, and new ids in ascending order. So the memory in use stays
// dense, and with a lazily committed mapping the resident memory grows only with use.
//
// Threading:  confined to the engine thread.
// Invariants: ids of all owners add up to the size of the pool: free + request + tree + in
//             transfer + pending reclaim = size; an id has exactly one owner; its generation counts
//             allocations.
// Cost:       allocate and free are O(1) per id and never touch the heap.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace heddle::cache {

enum class Owner : uint8_t {
  kFree,
  kRequest,         // a running sequence
  kTree,            // the prefix tree, which keeps it for later requests
  kInTransfer,      // being copied to or from another memory tier
  kPendingReclaim,  // will be free once the step that still uses it has finished
};

inline constexpr int kNumOwners = 5;

class IdPool {
 public:
  // Notified of every id that becomes free.
  class FreeObserver {
   public:
    virtual ~FreeObserver() = default;
    virtual void freed(std::span<const int32_t> ids) = 0;
  };

  // `name` appears in the messages of failed checks. `size` must fit int32 (checked).
  IdPool(std::string name, int64_t size);

  // Appends `count` ids to `ids`, owned by Owner::kRequest. If fewer are free it returns false and
  // changes nothing.
  [[nodiscard]] bool allocate(int64_t count, std::vector<int32_t>& ids);

  // Allocates one id; returns 0 if none is free.
  [[nodiscard]] int32_t allocate_one();

  // `observer` must outlive the pool; null removes it.
  void set_free_observer(FreeObserver* observer) { observer_ = observer; }

  // Frees ids of any owner. Freeing a free id is a broken invariant: it aborts and names the id.
  void free(std::span<const int32_t> ids);

  void free_one(int32_t id) { free({&id, 1}); }

  // Changes only the owner of an id, which must be `from` (checked).
  void move(int32_t id, Owner from, Owner to);

  [[nodiscard]] int64_t size() const { return size_; }

  [[nodiscard]] int64_t num_free() const { return count(Owner::kFree); }

  [[nodiscard]] int64_t num_used() const { return size_ - num_free(); }

  [[nodiscard]] int64_t count(Owner owner) const { return counts_[static_cast<size_t>(owner)]; }

  [[nodiscard]] Owner owner(int32_t id) const;

  // How often the id has been allocated. A caller that stores an id with its generation can detect
  // that the id was handed out again.
  [[nodiscard]] uint32_t generation(int32_t id) const;

  // Checks the invariants; aborts with the id if one is broken. Cost: O(size), for tests and idle
  // time.
  void check_invariants() const;

 private:
  struct Slot {
    uint32_t generation = 0;
    Owner owner = Owner::kFree;
  };

  void check_id(int32_t id) const;

  std::string name_;
  int64_t size_;
  std::vector<Slot> slots_;        // [size + 1], by id; entry 0 is unused
  std::vector<int32_t> free_ids_;  // the last one is handed out next
  std::array<int64_t, kNumOwners> counts_{};
  FreeObserver* observer_ = nullptr;
};

}  // namespace heddle::cache
