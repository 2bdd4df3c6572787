// SPDX-License-Identifier: Apache-2.0
#include "cache/id_pool.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::cache {

IdPool::IdPool(std::string name, int64_t size) : name_(std::move(name)), size_(size) {
  HEDDLE_CHECK_GE(size, 0);
  HEDDLE_CHECK_LT(size, std::numeric_limits<int32_t>::max());
  slots_.resize(static_cast<size_t>(size) + 1);
  free_ids_.reserve(static_cast<size_t>(size));
  for (auto id = static_cast<int32_t>(size); id >= 1; --id) free_ids_.push_back(id);
  counts_[static_cast<size_t>(Owner::kFree)] = size;
}

void IdPool::check_id(int32_t id) const {
  if (id < 1 || id > size_) [[unlikely]] {
    internal::check_failed(HEDDLE_WHERE, "1 <= id <= size",
                           fmt::format("{} {} of {}", name_, id, size_));
  }
}

int32_t IdPool::allocate_one() {
  if (free_ids_.empty()) return 0;
  const int32_t id = free_ids_.back();
  free_ids_.pop_back();
  Slot& slot = slots_[static_cast<size_t>(id)];
  HEDDLE_CHECK(slot.owner == Owner::kFree);
  slot.owner = Owner::kRequest;
  ++slot.generation;
  --counts_[static_cast<size_t>(Owner::kFree)];
  ++counts_[static_cast<size_t>(Owner::kRequest)];
  return id;
}

bool IdPool::allocate(int64_t count, std::vector<int32_t>& ids) {
  HEDDLE_CHECK_GE(count, 0);
  if (count > num_free()) return false;
  for (int64_t i = 0; i < count; ++i) ids.push_back(allocate_one());
  return true;
}

void IdPool::free(std::span<const int32_t> ids) {
  // In reverse order, so that a sequence's pages are handed out again in their old order.
  for (size_t i = ids.size(); i-- > 0;) {
    const int32_t id = ids[i];
    check_id(id);
    Slot& slot = slots_[static_cast<size_t>(id)];
    if (slot.owner == Owner::kFree) [[unlikely]] {
      internal::check_failed(HEDDLE_WHERE, "an owned id", fmt::format("{} {} is free", name_, id));
    }
    --counts_[static_cast<size_t>(slot.owner)];
    ++counts_[static_cast<size_t>(Owner::kFree)];
    slot.owner = Owner::kFree;
    free_ids_.push_back(id);
  }
  if (observer_ != nullptr) observer_->freed(ids);
}

void IdPool::move(int32_t id, Owner from, Owner to) {
  check_id(id);
  Slot& slot = slots_[static_cast<size_t>(id)];
  if (slot.owner != from || from == Owner::kFree || to == Owner::kFree) [[unlikely]] {
    internal::check_failed(
        HEDDLE_WHERE, "a move between owners",
        fmt::format("{} {} has owner {}, moved from {} to {}", name_, id,
                    static_cast<int>(slot.owner), static_cast<int>(from), static_cast<int>(to)));
  }
  --counts_[static_cast<size_t>(from)];
  ++counts_[static_cast<size_t>(to)];
  slot.owner = to;
}

Owner IdPool::owner(int32_t id) const {
  check_id(id);
  return slots_[static_cast<size_t>(id)].owner;
}

uint32_t IdPool::generation(int32_t id) const {
  check_id(id);
  return slots_[static_cast<size_t>(id)].generation;
}

void IdPool::check_invariants() const {
  std::array<int64_t, kNumOwners> counts{};
  for (int64_t id = 1; id <= size_; ++id) {
    ++counts[static_cast<size_t>(slots_[static_cast<size_t>(id)].owner)];
  }
  int64_t sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != counts_[i]) {
      internal::check_failed(
          HEDDLE_WHERE, "counts agree with the owners",
          fmt::format("{}: owner {} has {}, counted {}", name_, i, counts[i], counts_[i]));
    }
    sum += counts[i];
  }
  HEDDLE_CHECK_EQ(sum, size_);
  HEDDLE_CHECK_EQ(static_cast<int64_t>(free_ids_.size()), num_free());
  std::vector<bool> seen(static_cast<size_t>(size_) + 1, false);
  for (const int32_t id : free_ids_) {
    check_id(id);
    if (seen[static_cast<size_t>(id)] || owner(id) != Owner::kFree) {
      internal::check_failed(HEDDLE_WHERE, "the free list holds free ids once",
                             fmt::format("{} {}", name_, id));
    }
    seen[static_cast<size_t>(id)] = true;
  }
}

}  // namespace heddle::cache
