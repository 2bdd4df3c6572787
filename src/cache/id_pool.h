// SPDX-License-Identifier: Apache-2.0
// IdPool: hands out the ids 1..n of equal things (KV pages, state slots) and knows the owner of
// each. It moves indices only; a pool of memory stands beside it. Id 0 is
// never handed out: it stands for "none", for example in unused entries of a page table.
//
// The id that was freed last is handed out first, and fresh ids in ascending order: the memory in
// use stays dense, and with a lazily committed mapping resident memory grows only with use.
//
// Threading:  confined to the engine thread.
// Invariants: free + request + tree + in transfer + pending reclaim = size, always (the accounting
//             identity of the pools); an id has exactly one owner; its generation counts
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
  kTree,            // kept for later requests
  kInTransfer,      // being copied to or from another tier
  kPendingReclaim,  // free once the step that still uses it has finished
};

inline constexpr int kNumOwners = 5;

class IdPool {
 public:
  // Is called for every id that becomes free.
  class FreeObserver {
   public:
    virtual ~FreeObserver() = default;
    virtual void freed(std::span<const int32_t> ids) = 0;
  };

  // `name` appears in the messages of failed checks. `size` fits int32 (checked).
  IdPool(std::string name, int64_t size);

  // Appends `count` ids to `ids` and gives them to Owner::kRequest, or changes nothing and returns
  // false if fewer are free.
  [[nodiscard]] bool allocate(int64_t count, std::vector<int32_t>& ids);

  // One id, or 0 if none is free.
  [[nodiscard]] int32_t allocate_one();

  // `observer` must outlive the pool; null: none.
  void set_free_observer(FreeObserver* observer) { observer_ = observer; }

  // Frees ids of either owner. Freeing a free id is a broken invariant and aborts, naming the id.
  void free(std::span<const int32_t> ids);

  void free_one(int32_t id) { free({&id, 1}); }

  // Changes the owner of an id and nothing else.
  void move(int32_t id, Owner from, Owner to);

  [[nodiscard]] int64_t size() const { return size_; }

  [[nodiscard]] int64_t num_free() const { return count(Owner::kFree); }

  [[nodiscard]] int64_t num_used() const { return size_ - num_free(); }

  [[nodiscard]] int64_t count(Owner owner) const { return counts_[static_cast<size_t>(owner)]; }

  [[nodiscard]] Owner owner(int32_t id) const;

  // How often the id has been allocated. A user of an id that keeps the generation with it notices
  // when the id was handed to another owner.
  [[nodiscard]] uint32_t generation(int32_t id) const;

  // Proves the invariants or aborts naming the id. Cost: O(size), for tests and idle time.
  void check_invariants() const;

 private:
  struct Slot {
    uint32_t generation = 0;
    Owner owner = Owner::kFree;
  };

  void check_id(int32_t id) const;

  std::string name_;
  int64_t size_;
  std::vector<Slot> slots_;        // [size + 1], by id
  std::vector<int32_t> free_ids_;  // the next one to hand out is last
  std::array<int64_t, kNumOwners> counts_{};
  FreeObserver* observer_ = nullptr;
};

}  // namespace heddle::cache
