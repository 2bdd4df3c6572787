// SPDX-License-Identifier: Apache-2.0
// KeptDrafts: the drafts that a runner has made and keeps to itself (request::kKeptDraft), by batch
// slot: those that follow the last draw of each sequence. If a device makes them, a step that
// verifies them is enqueued before the host knows their tokens; the host knows only their index in
// a table on the device.
//
// Threading: confined to one thread. Cost: O(drafts), without allocation once its sizes have been
// seen; read_back() O(batch slots).
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

  // Replaces the drafts of the sequence in the batch slot. They follow its last draw.
  void keep(int32_t batch_slot, int64_t sequence_id, std::span<const TokenId> tokens) {
    begin(batch_slot, sequence_id).tokens.assign(tokens.begin(), tokens.end());
  }

  // Like keep(), for tokens that the host does not know yet: their indices in one of several device
  // tables.
  void keep_places(int32_t batch_slot, int64_t sequence_id, std::span<const int32_t> places,
                   int32_t table) {
    Slot& slot = begin(batch_slot, sequence_id);
    slot.table = table;
    slot.places.assign(places.begin(), places.end());
    slot.tokens.assign(places.size(), 0);
    has_places_ |= !places.empty();
  }

  // Drops the drafts of the slot, because its sequence has drawn again.
  void drop(int32_t batch_slot) { begin(batch_slot, -1).tokens.clear(); }

  // Replaces all indices by tokens, which are known now: token_at(place, table) returns one.
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

  // Whether the tokens of some kept drafts are unknown to the host.
  [[nodiscard]] bool has_places() const { return has_places_; }

  // Error: kInvalidArgument if the sequence verifies more kept drafts than there are.
  [[nodiscard]] Status check(const request::BatchPlan& plan,
                             const request::PlannedSequence& sequence) const;

  // The tokens of the drafts that `sequence` verifies, kept here (after check()) or in the plan; 0
  // for tokens that the host does not know yet.
  [[nodiscard]] std::span<const TokenId> tokens(const request::BatchPlan& plan,
                                                const request::PlannedSequence& sequence) const;

  // The indices of those tokens in the device's table (keep_places()); empty: the host knows the
  // tokens.
  [[nodiscard]] std::span<const int32_t> places(const request::BatchPlan& plan,
                                                const request::PlannedSequence& sequence) const;

 private:
  struct Slot {
    int64_t sequence_id = -1;
    std::vector<TokenId> tokens;
    std::vector<int32_t> places;  // indices in the device's table of tokens that the host does not
                                  // know
    int32_t table = 0;            // number of the device table that `places` refers to
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
