// SPDX-License-Identifier: Apache-2.0
// KeptDrafts: the drafts that a runner has made and kept to itself (request::kKeptDraft), by batch
// slot: those behind each sequence's last draw. Where a device makes them, a step that verifies
// them is enqueued before the host knows their tokens; it knows where they will lie.
//
// Threading: confined. Cost: O(drafts), without allocation once its sizes have been seen;
// read_back() O(batch slots).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "request/batch_plan.h"

namespace heddle::runner {

class KeptDrafts {
 public:
  explicit KeptDrafts(int64_t num_slots) : slots_(static_cast<size_t>(num_slots)) {}

  // Behind a draw of the sequence in that slot, instead of those before.
  void keep(int32_t batch_slot, int64_t sequence_id, std::span<const TokenId> tokens) {
    begin(batch_slot, sequence_id).tokens.assign(tokens.begin(), tokens.end());
  }

  // Likewise, of tokens that are not known yet: the places where they will be found, on the host in
  // one of several tables.
  void keep_places(int32_t batch_slot, int64_t sequence_id, std::span<const int32_t> places,
                   int32_t table) {
    Slot& slot = begin(batch_slot, sequence_id);
    slot.table = table;
    slot.places.assign(places.begin(), places.end());
    slot.tokens.assign(places.size(), 0);
    has_places_ |= !places.empty();
  }

  // The sequence in that slot has drawn again.
  void drop(int32_t batch_slot) { begin(batch_slot, -1).tokens.clear(); }

  // All tokens are known now: token_at(place, table) is one.
  template <typename TokenAt>
  void read_back(const TokenAt& token_at) {
    if (!has_places_) return;
    has_places_ = false;
    for (Slot& slot : slots_) {
      std::ranges::transform(slot.places, slot.tokens.begin(),
                             [&](int32_t place) { return token_at(place, slot.table); });
      slot.places.clear();
    }
  }

  // Some tokens are not known.
  [[nodiscard]] bool has_places() const { return has_places_; }

  // Error: kInvalidArgument where a sequence of the plan verifies more than were kept.
  [[nodiscard]] Status check(const request::BatchPlan& plan,
                             const request::PlannedSequence& sequence) const;

  // The tokens of the drafts that a sequence of the plan verifies, which check() found, or which
  // the plan has: 0 where they are not known yet.
  [[nodiscard]] std::span<const TokenId> tokens(const request::BatchPlan& plan,
                                                const request::PlannedSequence& sequence) const;

  // Where the tokens of those drafts will be found (keep_places()); empty: they are known.
  [[nodiscard]] std::span<const int32_t> places(const request::BatchPlan& plan,
                                                const request::PlannedSequence& sequence) const;

 private:
  struct Slot {
    int64_t sequence_id = -1;
    std::vector<TokenId> tokens;
    std::vector<int32_t> places;  // indices in the device's table of tokens that the host does not
                                  // know
    int32_t table = 0;            // that table
  };

  Slot& begin(int32_t batch_slot, int64_t sequence_id) {
    Slot& slot = slots_[static_cast<size_t>(batch_slot)];
    slot.sequence_id = sequence_id;
    slot.places.clear();
    return slot;
  }

  [[nodiscard]] const Slot& slot_of(const request::PlannedSequence& sequence) const {
    return slots_[static_cast<size_t>(sequence.batch_slot)];
  }

  std::vector<Slot> slots_;
  bool has_places_ = false;
};

}  // namespace heddle::runner
