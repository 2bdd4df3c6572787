// SPDX-License-Identifier: Apache-2.0
// MemoryBudget: one budget of bytes for several pools (KV pages, working states, snapshots)
// that together have more ids than memory. It counts which ids have memory and decides which ids
// lose it so that others may take some; the borders between the pools move with the load.
//
// An id is uncommitted (it has no memory), in use, or idle: free, but still with the memory that
// its last user committed. Committing an id that is idle costs nothing. Where one is uncommitted
// and the budget is spent, idle ids lose their memory, those of the other kinds first, those idle
// longest before the rest; the caller hands them to the device in the same plan
// (BatchPlan::moves), whose head gives memory back before anything is written.
//
// Threading:  confined to the engine thread; indices only, no memory is touched.
// Invariants: bytes of all ids in use and idle <= shared_bytes.
// Cost:       O(1) per id, no heap use after construction except in `released`.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::cache {

// Kinds of memory, each with its own ids from 1.
enum class MemoryKind : uint8_t { kPages, kStates, kSnapshots };

inline constexpr std::array kMemoryKinds = {MemoryKind::kPages, MemoryKind::kStates,
                                            MemoryKind::kSnapshots};

// A value for each kind.
template <typename Value>
struct PerMemoryKind {
  std::array<Value, kMemoryKinds.size()> values{};

  Value& operator[](MemoryKind kind) { return values[static_cast<size_t>(kind)]; }

  const Value& operator[](MemoryKind kind) const { return values[static_cast<size_t>(kind)]; }
};

// Ids whose memory goes back to the system.
using ReleasedIds = PerMemoryKind<std::vector<int32_t>>;

class MemoryBudget {
 public:
  struct Pool {
    int64_t num_ids = 0;
    int64_t bytes_each = 0;  // 0: they cost nothing
  };

  struct Options {
    PerMemoryKind<Pool> pools;
    int64_t shared_bytes = 0;  // 0: all ids fit at once
  };

  // Numbers are not negative (checked). Nothing is committed.
  explicit MemoryBudget(const Options& options);

  // Marks ids that are not in use (checked) as used. Appends to `released` the idle ids that lose
  // their memory for it. Returns false and changes nothing if the ids do not fit next to those in
  // use; idle ids never prevent it.
  [[nodiscard]] bool commit(MemoryKind kind, std::span<const int32_t> wanted,
                            ReleasedIds& released);

  // The ids, which are in use (checked), are idle from now on.
  void free(MemoryKind kind, std::span<const int32_t> freed);

  [[nodiscard]] int64_t bytes_in_use() const;

  // In use and idle: the memory that the pools have from the system.
  [[nodiscard]] int64_t committed_bytes() const;

  [[nodiscard]] bool committed(MemoryKind kind, int32_t id) const {
    return pools_[kind].states[static_cast<size_t>(id)] != State::kUncommitted;
  }

  // Proves the invariants or aborts. Cost: O(ids), for tests and idle time.
  void check_invariants() const;

 private:
  enum class State : uint8_t { kUncommitted, kInUse, kIdle };

  // The ids of one kind; the idle ones in a ring, linked through id 0, the longest idle first.
  struct Ids {
    Ids() = default;
    explicit Ids(const Pool& pool);

    [[nodiscard]] State& state(int32_t id);  // `id` must exist (checked)
    void append_idle(int32_t id);
    void remove_idle(int32_t id);
    [[nodiscard]] bool release_one(std::vector<int32_t>& released);
    void check_invariants() const;

    int64_t bytes_each = 0;
    int64_t num_in_use = 0;
    int64_t num_idle = 0;
    std::vector<State> states;
    std::vector<int32_t> next;
    std::vector<int32_t> previous;
  };

  void release_one(MemoryKind user, ReleasedIds& released);

  int64_t shared_bytes_;
  PerMemoryKind<Ids> pools_;
};

}  // namespace heddle::cache
