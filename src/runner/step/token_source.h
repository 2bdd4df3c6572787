// SPDX-License-Identifier: Apache-2.0
// TokenSource: for each batch slot, where the token is that its sequence drew last. A plan may feed
// a token that the host has not seen, so a step asks here before it is laid out:
//
//                 begin(): a step computes the slot's sequence and will draw
//     +---------+ ------------------------------------------> +--------------+
//     | kHost   |                                             | kDevice      |
//     | a token | <------------------------------------------ | a row of     |
//     +---------+   drew(): the host has the token            | logits       |
//          ^                                                  +--------------+
//          | drew()                                              |    |  drew(): the step before
//     +---------+     drew() without a token, lose_all()         |    |  ended the text, so that
//     | kNone   | <----------------------------------------------+    |  this one leaves it out
//     +---------+                                         kHost  <----+
//
// At most kMaxStepsInFlight steps run, so a slot's sequence is in at most two of them; the row is
// that of the later step. If a token drawn in the first step ends the text, the device leaves the
// sequence out of the second. The slot is then free for another sequence as soon as the host knows
// the token.
//
// Steps are numbered in the order in which they begin and finish.
//
// Threading: confined to one thread. Cost: O(1) a call, lose_all() O(batch slots).
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/request.h>

#include "runner/step/step_sequence.h"
#include "sampling/sampler.h"

namespace heddle::runner {

class TokenSource {
 public:
  enum class Place : uint8_t {
    kNone,    // no token was drawn, or the draw failed
    kHost,    // the host knows the last drawn token
    kDevice,  // a step in flight draws the token on the device
  };

  struct Drawn {
    Place place = Place::kNone;
    TokenId token = sampling::kNoToken;  // the last drawn token, for kHost
    int32_t row = -1;                    // for kDevice: the row of the running step's logits from
                                         // which it is drawn
  };

  explicit TokenSource(int64_t num_slots) : slots_(static_cast<size_t>(num_slots)) {}

  [[nodiscard]] int64_t num_slots() const { return std::ssize(slots_); }

  // Records that `step` has begun with this sequence in it.
  void begin(const StepSequence& sequence, int64_t step) {
    if (sequence.part == StepSequence::Part::kSkipped) return;
    begin(sequence.planned->batch_slot, step, sequence.draws_computed() ? sequence.logit_row : -1);
  }

  // Records that `step` computes the sequence in the slot and draws from row `row` of its logits;
  // -1: it does not draw.
  void begin(int32_t batch_slot, int64_t step, int32_t row) {
    Slot& slot = slots_[static_cast<size_t>(batch_slot)];
    slot.step = step;
    slot.row = row;
  }

  // Records the token that `step` drew for the sequence in the slot; kNoToken: the draw failed.
  // `ends`: the text ends with this token; it also ends with a failed draw.
  void drew(int32_t batch_slot, int64_t step, TokenId token, bool ends) {
    Slot& slot = slots_[static_cast<size_t>(batch_slot)];
    slot.token = token;
    if (ends && slot.step > step) slot.step = kNoStep;
  }

  // Records that all steps up to `step` are done.
  void finish(int64_t step) { finished_ = step; }

  // Called when a step failed: all earlier draws count as failed, also those of steps that still
  // run.
  void lose_all() {
    for (Slot& slot : slots_) {
      slot.token = sampling::kNoToken;
      slot.row = -1;
    }
  }

  [[nodiscard]] Drawn last(int32_t batch_slot) const {
    const Slot& slot = slots_[static_cast<size_t>(batch_slot)];
    if (runs(slot) && slot.row >= 0) return {.place = Place::kDevice, .row = slot.row};
    if (slot.token == sampling::kNoToken) return {};
    return {.place = Place::kHost, .token = slot.token};
  }

  // The last token that the host knows, also while a running step draws a later one.
  [[nodiscard]] TokenId known(int32_t batch_slot) const {
    return slots_[static_cast<size_t>(batch_slot)].token;
  }

  // Whether a running step computes the sequence in the slot, as far as the host knows.
  [[nodiscard]] bool is_computing(int32_t batch_slot) const {
    return runs(slots_[static_cast<size_t>(batch_slot)]);
  }

 private:
  static constexpr int64_t kNoStep = -1;

  struct Slot {
    TokenId token = sampling::kNoToken;  // the last token that the host knows
    int64_t step = kNoStep;              // number of the last step that computes the sequence
    // Row among the logits of `step`; -1: the step does not draw, or its draw was lost.
    int32_t row = -1;
  };

  [[nodiscard]] bool runs(const Slot& slot) const { return slot.step > finished_; }

  std::vector<Slot> slots_;
  int64_t finished_ = kNoStep;
};

}  // namespace heddle::runner
