// SPDX-License-Identifier: Apache-2.0
// StateAllocator: records which recurrent-state slots are free. A slot holds the state of one
// sequence at one moment: a convolution window and a recurrent matrix for every linear-attention
// layer.
//
// A running sequence advances its working slot in place, so a slot is never shared. The contents of
// a newly allocated slot are undefined: it must be zeroed or copied into before the first layer
// runs (a plan lists that as MoveKind::kZero or kRestore). Snapshots use these slots, or have an
// allocator of their own. Each slot has a label, the number of tokens that its state was computed
// from; the state may be reused for exactly these tokens only. If the pool is short, no slot is
// allocated and the request waits.
//
// Threading, invariants and cost: as IdPool.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/id_pool.h"

namespace heddle::cache {

class StateAllocator {
 public:
  // `num_slots` is 0 for models without recurrent state.
  explicit StateAllocator(int64_t num_slots, const char* name = "state slot")
      : ids_(name, num_slots), labels_(static_cast<size_t>(num_slots) + 1, 0) {}

  // Allocates a slot and sets its label to 0; returns 0 if no slot is free.
  [[nodiscard]] int32_t allocate() {
    const int32_t slot = ids_.allocate_one();
    if (slot != 0) labels_[static_cast<size_t>(slot)] = 0;
    return slot;
  }

  void release(int32_t slot) { ids_.free_one(slot); }

  [[nodiscard]] int64_t label(int32_t slot) const { return labels_[static_cast<size_t>(slot)]; }

  void set_label(int32_t slot, int64_t num_tokens) {
    labels_[static_cast<size_t>(slot)] = num_tokens;
  }

  [[nodiscard]] int64_t num_slots() const { return ids_.size(); }

  [[nodiscard]] int64_t num_free() const { return ids_.num_free(); }

  [[nodiscard]] int64_t num_used() const { return ids_.num_used(); }

  [[nodiscard]] IdPool& ids() { return ids_; }

  [[nodiscard]] const IdPool& ids() const { return ids_; }

  void check_invariants() const { ids_.check_invariants(); }

 private:
  IdPool ids_;
  std::vector<int64_t> labels_;  // by slot: number of tokens that the state was computed from
};

}  // namespace heddle::cache
