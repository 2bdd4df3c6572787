// SPDX-License-Identifier: Apache-2.0
#include "cache/memory_budget.h"

#include <limits>

#include "core/check.h"

namespace heddle::cache {

MemoryBudget::MemoryBudget(const Options& options)
    : options_(options),
      pages_(make_ids(options.num_pages, options.page_bytes)),
      slots_(make_ids(options.num_slots, options.slot_bytes)) {
  HEDDLE_CHECK(options.shared_bytes >= 0);
}

MemoryBudget::Ids MemoryBudget::make_ids(int64_t count, int64_t bytes_each) {
  HEDDLE_CHECK(count >= 0 && count < std::numeric_limits<int32_t>::max() && bytes_each >= 0);
  const auto size = static_cast<size_t>(count) + 1;
  Ids ids;
  ids.bytes_each = bytes_each;
  ids.states.assign(size, State::kUncommitted);
  ids.next.assign(size, 0);
  ids.previous.assign(size, 0);
  return ids;
}

void MemoryBudget::Ids::append_idle(int32_t id) {
  const int32_t last = previous[0];
  next[static_cast<size_t>(last)] = id;
  previous[static_cast<size_t>(id)] = last;
  next[static_cast<size_t>(id)] = 0;
  previous[0] = id;
  ++num_idle;
}

void MemoryBudget::Ids::remove_idle(int32_t id) {
  const auto index = static_cast<size_t>(id);
  next[static_cast<size_t>(previous[index])] = next[index];
  previous[static_cast<size_t>(next[index])] = previous[index];
  --num_idle;
}

bool MemoryBudget::commit(Ids& ids, std::span<const int32_t> wanted, ReleasedIds& released) {
  if (!can_commit(std::ssize(wanted) * ids.bytes_each)) return false;
  // All of them leave the idle first, so that none of them is released for another.
  for (const int32_t id : wanted) {
    HEDDLE_CHECK(id >= 1 && id < std::ssize(ids.states));
    State& state = ids.states[static_cast<size_t>(id)];
    HEDDLE_CHECK(state != State::kInUse);
    if (state == State::kIdle) ids.remove_idle(id);
    state = State::kInUse;
    ++ids.num_in_use;
  }
  if (options_.shared_bytes == 0) return true;
  const bool for_pages = &ids == &pages_;
  while (committed_bytes() > options_.shared_bytes) {
    const bool done =
        for_pages ? release_one(slots_, released.slots) || release_one(pages_, released.pages)
                  : release_one(pages_, released.pages) || release_one(slots_, released.slots);
    HEDDLE_CHECK(done);
  }
  return true;
}

bool MemoryBudget::release_one(Ids& ids, std::vector<int32_t>& released) {
  if (ids.num_idle == 0 || ids.bytes_each == 0) return false;
  const int32_t id = ids.next[0];
  ids.remove_idle(id);
  ids.states[static_cast<size_t>(id)] = State::kUncommitted;
  released.push_back(id);
  return true;
}

void MemoryBudget::make_idle(Ids& ids, std::span<const int32_t> freed) {
  for (const int32_t id : freed) {
    HEDDLE_CHECK(id >= 1 && id < std::ssize(ids.states));
    State& state = ids.states[static_cast<size_t>(id)];
    HEDDLE_CHECK(state == State::kInUse);
    state = State::kIdle;
    --ids.num_in_use;
    ids.append_idle(id);
  }
}

void MemoryBudget::check(const Ids& ids) {
  int64_t in_use = 0;
  int64_t idle = 0;
  for (const State state : ids.states) {
    in_use += state == State::kInUse ? 1 : 0;
    idle += state == State::kIdle ? 1 : 0;
  }
  HEDDLE_CHECK_EQ(in_use, ids.num_in_use);
  HEDDLE_CHECK_EQ(idle, ids.num_idle);
  int64_t linked = 0;
  for (int32_t id = ids.next[0]; id != 0; id = ids.next[static_cast<size_t>(id)]) {
    HEDDLE_CHECK(ids.states[static_cast<size_t>(id)] == State::kIdle && ++linked <= idle);
  }
  HEDDLE_CHECK_EQ(linked, idle);
}

void MemoryBudget::check_invariants() const {
  check(pages_);
  check(slots_);
  HEDDLE_CHECK(options_.shared_bytes == 0 || committed_bytes() <= options_.shared_bytes);
}

}  // namespace heddle::cache
