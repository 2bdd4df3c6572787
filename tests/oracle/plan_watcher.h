// SPDX-License-Identifier: Apache-2.0
// PlanWatcher: a runner between the engine and the toy device. It counts what plans contain, so
// that a test can require that the interesting things happened, and on request damages plans: each
// Damage is the effect of a known kind of bug of a scheduler or a cache on a plan.
//
// Threading: as Runner.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "dice.h"
#include "request/batch_slots.h"
#include "runner/runner.h"

namespace heddle::oracle {

enum class Damage {
  kNone,
  kLabelTooSmall,    // a snapshot is taken one token early: stale
  kLabelTooLarge,    // one token late: from the future
  kSnapshotDropped,  // a slot is published that nothing was written to
  kSlotMixedUp,      // a state is copied from another sequence's snapshot
  kSlotReusedEarly,  // a slot that was published is given to another sequence
  kStateNotZeroed,
  kStateCopyDropped,
  kSaveDropped,        // the end of a sequence is published and not saved
  kSaveMixedUp,        // another sequence's state is saved
  kKvTokensTooLarge,   // KV rows that were not computed are taken as computed
  kPageSwapped,        // two pages of a sequence's context change places
  kWindowPageSwapped,  // likewise of a layer that slides
  kPageCopyDropped,
  kEndComputed,       // a sequence that had ended is computed, and reported as left out
  kBatchSlotMixedUp,  // a token is fed from the batch slot of another sequence
  kDraftBelieved,     // a draft is computed as a new token, whatever the model draws
  kAcceptedLost,      // the last token of a span does not reach the host
  kRejectedRowKept,   // the KV row of a rejected draft is taken as that of the token drawn instead
};

inline constexpr std::array kAllDamages = {
    Damage::kLabelTooSmall,    Damage::kLabelTooLarge,   Damage::kSnapshotDropped,
    Damage::kSlotMixedUp,      Damage::kSlotReusedEarly, Damage::kStateNotZeroed,
    Damage::kStateCopyDropped, Damage::kSaveDropped,     Damage::kSaveMixedUp,
    Damage::kKvTokensTooLarge, Damage::kPageSwapped,     Damage::kWindowPageSwapped,
    Damage::kPageCopyDropped,  Damage::kEndComputed,     Damage::kBatchSlotMixedUp,
    Damage::kDraftBelieved,    Damage::kAcceptedLost,    Damage::kRejectedRowKept};

const char* name_of(Damage damage);

// Counts of the content of plans, and of damaged ones.
struct PlanCounts {
  int64_t steps = 0;
  int64_t steps_in_flight = 0;  // that were submitted while another one was
  int64_t mixed_steps = 0;      // prefill and decode in one
  int64_t fed_tokens = 0;
  int64_t skipped = 0;
  int64_t snapshots = 0;
  int64_t draft_snapshots = 0;  // of these, inside drafts
  int64_t trees = 0;            // of drafts
  int64_t made_drafts = 0;      // by the device
  int64_t kept_drafts = 0;      // of these; it told nobody their tokens
  int64_t hidden_kept = 0;
  int64_t hidden_repeats = 0;
  int64_t state_copies = 0;
  int64_t saves = 0;
  int64_t page_copies = 0;
  int64_t replayed_rows = 0;        // computed again without being written
  int64_t shared_pages = 0;         // pages that two sequences of a step read
  int64_t shared_window_pages = 0;  // likewise of a layer that slides
  int64_t window_page_copies = 0;
  int64_t restarts = 0;    // of sequences that were retracted or preempted
  int64_t given_back = 0;  // pages and slots
  int64_t outgrown = 0;    // sequences that restarted with the second table of longrope
  int64_t damages = 0;

  PlanCounts& operator+=(const PlanCounts& other);
};

class PlanWatcher final : public runner::Runner {
 public:
  // The device outlives the watcher.
  PlanWatcher(runner::Runner& device, Damage damage, uint64_t seed, PlanCounts& counts);

  [[nodiscard]] const runner::PoolSizes& pool_sizes() const override {
    return device_.pool_sizes();
  }

  [[nodiscard]] const request::StepLimits& step_limits() const override {
    return device_.step_limits();
  }

  Status submit(const request::BatchPlan& plan) override;
  Result<request::StepOutput> wait() override;

  void recycle(request::StepOutput output) override { device_.recycle(std::move(output)); }

 private:
  struct DamagedPlan {
    request::BatchPlan plan;
    std::set<int64_t> fed;  // sequences whose ending tokens are hidden from the device
  };

  static bool begins(const request::BatchPlan& plan, const request::PlannedSequence& sequence);
  void count(const request::BatchPlan& plan);
  void lose_accepted(request::StepOutput& output);
  void hide_computed_ends(const DamagedPlan& damaged, request::StepOutput& output);
  void damage_plan(DamagedPlan& damaged);
  static bool drop_move(request::BatchPlan& plan, request::MoveKind kind);
  bool damage_once(DamagedPlan& damaged);
  bool move_label(DamagedPlan& damaged, int64_t by);
  bool swap_pages(DamagedPlan& damaged);
  bool swap_window_pages(DamagedPlan& damaged);
  void hide_ending_tokens(request::BatchPlan& plan);
  void resend_swapped(request::PlannedSequence& one, request::PlannedSequence& other,
                      request::BatchPlan& plan);
  bool reuse_slot(DamagedPlan& damaged);
  bool keep_rejected_row(DamagedPlan& damaged);

  [[nodiscard]] bool has_own_snapshot_slots() const { return pool_sizes().num_snapshot_slots > 0; }

  runner::Runner& device_;
  Damage damage_;
  Dice dice_;
  PlanCounts& counts_;
  std::array<DamagedPlan, runner::kMaxStepsInFlight> plans_;
  request::BatchSlots slots_;                       // as the plans say, without damage
  std::map<int64_t, std::vector<TokenId>> ending_;  // hidden from the device, by sequence
  std::set<int64_t> shows_ending_;  // sequences whose ending tokens cannot be hidden
  int64_t num_submitted_ = 0;
  int64_t num_waited_ = 0;
  std::set<int64_t> known_;  // sequences that were in a step
  // Those of known_ that use the second table of longrope.
  std::set<int64_t> long_;
  std::map<int64_t, TokenId> last_drawn_;
  std::map<int64_t, int64_t> draft_ends_;  // by sequence: behind its step's last draft's row
  std::vector<int32_t> published_;         // slots that snapshots were taken to
};

}  // namespace heddle::oracle
