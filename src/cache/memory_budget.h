// SPDX-License-Identifier: Apache-2.0
// MemoryBudget: one budget of bytes for several pools (KV pages, working states, snapshots) that
// together have more ids than memory. It records which ids have memory and decides which ids lose
// theirs to others, so that the split between the pools moves with the load.
//
// An id is uncommitted (it has no memory), in use, or idle: free, but with the memory that its last
// user committed. Committing an idle id costs nothing. If an uncommitted id is committed and the
// budget is used up, idle ids lose their memory: ids of other kinds first, and of a kind the one
// idle for the longest time. The caller plans the release in the same plan (BatchPlan::moves),
// where memory is returned before anything is written.
//
// Threading:  confined to the engine thread; manages indices only and touches no memory.
// Invariants: bytes of all ids in use and idle <= shared_bytes.
// Cost:       O(1) per id, no heap use after construction except in `released`.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::cache {

// The kinds of memory. Each has its own ids from 1.
enum class MemoryKind : uint8_t { kPages, kStates, kSnapshots };

inline constexpr std::array kMemoryKinds = {MemoryKind::kPages, MemoryKind::kStates,
                                            MemoryKind::kSnapshots};

// One value for each kind of memory.
template <typename Value>
struct PerMemoryKind {
  std::array<Value, kMemoryKinds.size()> values{};

  Value& operator[](MemoryKind kind) { return values[static_cast<size_t>(kind)]; }

  const Value& operator[](MemoryKind kind) const { return values[static_cast<size_t>(kind)]; }
};

// Ids whose memory returns to the system.
using ReleasedIds = PerMemoryKind<std::vector<int32_t>>;

class MemoryBudget {
 public:
  struct Pool {
    int64_t num_ids = 0;
    int64_t bytes_each = 0;  // bytes of one id; 0: ids need no memory
  };

  struct Options {
    PerMemoryKind<Pool> pools;
    int64_t shared_bytes = 0;  // memory for all pools together; 0: all ids fit at once
  };

  // No number may be negative (checked). All ids are uncommitted at first.
  explicit MemoryBudget(const Options& options);

  // Marks `wanted`, which are not in use (checked), as in use. Appends to `released` the idle ids
  // that lose their memory for them. Returns false and changes nothing if `wanted` do not fit next
  // to the ids in use; idle ids never prevent that.
  [[nodiscard]] bool commit(MemoryKind kind, std::span<const int32_t> wanted,
                            ReleasedIds& released);

  // Marks ids in use (checked) as idle.
  void free(MemoryKind kind, std::span<const int32_t> freed);

  [[nodiscard]] int64_t bytes_in_use() const;

  // Bytes of the ids in use and idle: the memory that the pools have from the system.
  [[nodiscard]] int64_t committed_bytes() const;

  [[nodiscard]] bool committed(MemoryKind kind, int32_t id) const {
    return pools_[kind].states[static_cast<size_t>(id)] != State::kUncommitted;
  }

  // Checks the invariants and aborts if one is broken. Cost: O(ids), for tests and idle time.
  void check_invariants() const;

 private:
  enum class State : uint8_t { kUncommitted, kInUse, kIdle };

  // The ids of one kind. Idle ids form a ring, linked through id 0, with the longest idle first.
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
