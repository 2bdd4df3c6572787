// SPDX-License-Identifier: Apache-2.0
#include "cache/memory_budget.h"

#include <limits>

#include "core/check.h"

namespace heddle::cache {

MemoryBudget::MemoryBudget(const Options& options) : shared_bytes_(options.shared_bytes) {
  HEDDLE_CHECK_GE(options.shared_bytes, 0);
  for (const MemoryKind kind : kMemoryKinds) pools_[kind] = Ids(options.pools[kind]);
}

MemoryBudget::Ids::Ids(const Pool& pool) : bytes_each(pool.bytes_each) {
  HEDDLE_CHECK(pool.num_ids >= 0 && pool.num_ids < std::numeric_limits<int32_t>::max());
  HEDDLE_CHECK_GE(pool.bytes_each, 0);
  const auto size = static_cast<size_t>(pool.num_ids) + 1;
  states.assign(size, State::kUncommitted);
  next.assign(size, 0);
  previous.assign(size, 0);
}

MemoryBudget::State& MemoryBudget::Ids::state(int32_t id) {
  HEDDLE_CHECK(id >= 1 && id < std::ssize(states));
  return states[static_cast<size_t>(id)];
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

bool MemoryBudget::Ids::release_one(std::vector<int32_t>& released) {
  if (num_idle == 0 || bytes_each == 0) return false;
  const int32_t id = next[0];
  remove_idle(id);
  states[static_cast<size_t>(id)] = State::kUncommitted;
  released.push_back(id);
  return true;
}

int64_t MemoryBudget::bytes_in_use() const {
  int64_t bytes = 0;
  for (const Ids& ids : pools_.values) bytes += ids.num_in_use * ids.bytes_each;
  return bytes;
}

int64_t MemoryBudget::committed_bytes() const {
  int64_t bytes = 0;
  for (const Ids& ids : pools_.values) bytes += (ids.num_in_use + ids.num_idle) * ids.bytes_each;
  return bytes;
}

bool MemoryBudget::commit(MemoryKind kind, std::span<const int32_t> wanted, ReleasedIds& released) {
  Ids& ids = pools_[kind];
  const bool limited = shared_bytes_ > 0;
  if (limited && std::ssize(wanted) * ids.bytes_each > shared_bytes_ - bytes_in_use()) return false;
  // First removes all wanted ids from the idle ones, so that none is released for another.
  for (const int32_t id : wanted) {
    State& state = ids.state(id);
    HEDDLE_CHECK(state != State::kInUse);
    if (state == State::kIdle) ids.remove_idle(id);
    state = State::kInUse;
    ++ids.num_in_use;
  }
  while (limited && committed_bytes() > shared_bytes_) release_one(kind, released);
  return true;
}

// Some id must be idle, because the ids in use alone fit the budget.
void MemoryBudget::release_one(MemoryKind user, ReleasedIds& released) {
  for (const MemoryKind kind : kMemoryKinds) {
    if (kind != user && pools_[kind].release_one(released[kind])) return;
  }
  HEDDLE_CHECK(pools_[user].release_one(released[user]));
}

void MemoryBudget::free(MemoryKind kind, std::span<const int32_t> freed) {
  Ids& ids = pools_[kind];
  for (const int32_t id : freed) {
    State& state = ids.state(id);
    HEDDLE_CHECK(state == State::kInUse);
    state = State::kIdle;
    --ids.num_in_use;
    ids.append_idle(id);
  }
}

void MemoryBudget::Ids::check_invariants() const {
  int64_t in_use = 0;
  int64_t idle = 0;
  for (const State state : states) {
    in_use += state == State::kInUse ? 1 : 0;
    idle += state == State::kIdle ? 1 : 0;
  }
  HEDDLE_CHECK_EQ(in_use, num_in_use);
  HEDDLE_CHECK_EQ(idle, num_idle);
  int64_t linked = 0;
  for (int32_t id = next[0]; id != 0; id = next[static_cast<size_t>(id)]) {
    HEDDLE_CHECK(states[static_cast<size_t>(id)] == State::kIdle && ++linked <= idle);
  }
  HEDDLE_CHECK_EQ(linked, idle);
}

void MemoryBudget::check_invariants() const {
  for (const Ids& ids : pools_.values) ids.check_invariants();
  HEDDLE_CHECK(shared_bytes_ == 0 || committed_bytes() <= shared_bytes_);
}

}  // namespace heddle::cache
