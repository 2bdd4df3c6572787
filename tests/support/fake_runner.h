// SPDX-License-Identifier: Apache-2.0
// FakeRunner: a toy device that honours the whole contract of BatchPlan and computes the toy model
// (support/toy_model.h). A page, batch slot, state slot or token that the wrong sequence uses
// changes the drawn tokens, and is reported by complaints() at once.
//
//   FakeRunner runner({.num_pages = 8, .page_size = 4, .num_state_slots = 2, .max_sequences = 4},
//                     {.max_tokens = 16});
//   ... run steps ...
//   EXPECT_THAT(runner.complaints(), IsEmpty());
//
// A step is computed when it is submitted or, with `lazy`, as late as the contract allows: when it
// is waited for. Everything that the plan does not promise is garbage: memory that was reported
// unused, hidden vectors that were not to be kept, tokens of failed draws.
//
// Threading: as Runner; the hooks run on the engine thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "request/batch_slots.h"
#include "runner/runner.h"
#include "speculative/draft_tree.h"
#include "support/toy_model.h"

namespace heddle::testing {

// A fault of a device that verifies drafts.
enum class VerifyFault {
  kNone,
  kStateOfWrongParent,   // a draft of a tree starts from the state of the draft before it
  kWindowOfWrongParent,  // likewise from its convolution window
  kStateOneLate,         // the last accepted draft is missing in the state that is published
  kStateOfWrongNode,     // the state after draft n is published, n drafts of a tree were accepted
  kBonusInSnapshot,      // a snapshot after the last accepted draft has the token drawn there, too
  kRowsNotMoved,         // keys and values of accepted drafts of a tree stay where they were
  kCoinOfParent,         // the draw behind a draft takes the coin of the draw before it
  kCoinOfRow,            // the draw behind draft n of a tree takes the coin of the n-th draw
};

class FakeRunner final : public runner::Runner {
 public:
  static constexpr TokenId kVocabSize = 256;

  FakeRunner(const runner::PoolSizes& sizes, const request::StepLimits& limits);

  // Called at the start of every step; an error, or an exception, fails the step and all that come
  // after it.
  std::function<Status(const request::BatchPlan&)> on_step;

  // The token drawn instead of the model's by a sequence that has drawn so many before; none: the
  // model's. Of both, the next one that the sequence's mask allows.
  std::function<std::optional<TokenId>(const request::PlannedSequence&, int64_t num_drawn)> script;

  // Makes a draft (PlannedSequence::wanted_drafts) where the model, which has only read drafts that
  // it made so, would draw `right`; none: the drafts end. Empty: it makes none.
  std::function<std::optional<TokenId>(TokenId right)> make_draft;
  bool branches_drafts = false;  // each of these drafts follows any of those before it

  // Fails what scores the token at `position` of one sequence's prompt.
  std::function<Status(const request::PlannedSequence&, int64_t position)> score_error;

  // Fails a draw of one sequence, which has drawn so many tokens before.
  std::function<Status(const request::PlannedSequence&, int64_t num_drawn)> sequence_error;

  // Called by read_weights(), on whatever thread; its error is that of the call.
  std::function<Status(const runner::WeightFolder&, const std::atomic<bool>& cancelled)>
      on_read_weights;

  // The folder of the weights in use, for scripts that draw by them; empty: those it began with.
  std::string weights;

  // Done wherever it can be.
  VerifyFault verify_fault = VerifyFault::kNone;

  bool lazy = true;  // false: steps are computed in submit(), which then returns on_step's status
  bool checks_plans = true;  // off: no allocation of its own
  ToyVocabulary vocabulary;

  // The token that the model draws after `tokens`.
  static TokenId next_token(std::span<const TokenId> tokens,
                            std::span<const TokenId> forbidden = {});

  // How the model scores `token` behind `tokens`.
  static TokenLogprob score(std::span<const TokenId> tokens, TokenId token, int32_t num_top);

  [[nodiscard]] const runner::PoolSizes& pool_sizes() const override { return sizes_; }

  [[nodiscard]] const request::StepLimits& step_limits() const override { return limits_; }

  Status submit(const request::BatchPlan& plan) override;
  Result<request::StepOutput> wait() override;
  [[nodiscard]] Result<std::unique_ptr<runner::NewWeights>> read_weights(
      const runner::WeightFolder& folder, const std::atomic<bool>& cancelled) const override;
  Status use_weights(const runner::NewWeights& given) override;
  void recycle(request::StepOutput output) override;

  // Faults of plans and of the data found in pages and states.
  [[nodiscard]] const std::vector<std::string>& complaints() const { return complaints_; }

  [[nodiscard]] int64_t num_steps() const { return num_steps_; }

  [[nodiscard]] int64_t num_verify_faults() const { return num_verify_faults_; }

  [[nodiscard]] int num_in_flight() const { return num_in_flight_; }

 private:
  // A plan, to see whether it stayed as it was.
  struct PlanCopy {
    explicit PlanCopy(const request::BatchPlan& source);
    [[nodiscard]] bool matches(const request::BatchPlan& plan) const;

    std::vector<int64_t> values;  // everything, end to end
  };

  struct Flight {
    const request::BatchPlan* plan = nullptr;
    std::optional<PlanCopy> copy;
    std::optional<Result<request::StepOutput>> output;
  };

  // Kept for a batch slot: the last token drawn in it.
  struct DrawnToken {
    int64_t sequence_id = -1;
    int64_t position = -1;  // how many tokens come before it
    TokenId token = 0;
    bool failed = false;
  };

  // Likewise: the drafts behind it, where the plan let them be kept.
  struct KeptDrafts {
    int64_t sequence_id = -1;
    std::vector<TokenId> tokens;
  };

  void complain(std::string what);
  Result<request::StepOutput> compute(const request::BatchPlan& plan);
  void prepare(const request::BatchPlan& plan);
  void check_memory();
  [[nodiscard]] bool had_ended(const request::PlannedSequence& sequence);
  ToyHidden advance(const request::BatchPlan& plan, const request::PlannedSequence& sequence);
  void score(const request::BatchPlan& plan, const request::PlannedSequence& sequence,
             request::StepOutput& output);
  ToyHidden repeat(const request::PlannedSequence& sequence);
  void take_snapshots(std::span<const request::PlannedSnapshot> snapshots, int64_t tokens,
                      const ToyState& now);
  void check_contexts(const request::BatchPlan& plan);
  void check_output_tokens(const request::PlannedSequence& sequence, int64_t end);
  void draw_span(const request::BatchPlan& plan, const request::PlannedSequence& sequence,
                 ToyHidden hidden, request::StepOutput& output);
  void compute_drafts(const request::PlannedSequence& sequence, int64_t begin);
  ToyHidden accept(const request::BatchPlan& plan, const request::PlannedSequence& sequence,
                   int64_t begin, int32_t node);
  void spoil_accepted(const request::BatchPlan& plan, const request::PlannedSequence& sequence,
                      int64_t begin, const request::SampledToken& last);
  [[nodiscard]] std::span<const TokenId> drafts_of(const request::BatchPlan& plan,
                                                   const request::PlannedSequence& sequence);
  int64_t coin_position(int64_t position);
  void make_drafts(const request::PlannedSequence& sequence, request::StepOutput& output);
  void draw(const request::BatchPlan& plan, const request::PlannedSequence& sequence,
            int64_t position, const ToyHidden& hidden, request::SampledToken& sampled);
  void fill_page(int32_t page, const ToyRow& row);
  void write_row(const request::PlannedSequence& sequence, int64_t token, const ToyRow& value);
  ToyRow& row(const request::PlannedSequence& sequence, int64_t token, size_t table = 0);
  ToyState read_context(const request::PlannedSequence& sequence, ToyAttention& attention);
  void check_windows(const request::PlannedSequence& sequence);
  ToyHidden hidden_after(const request::PlannedSequence& sequence, int64_t num_tokens,
                         const ToyState& state, const ToyAttention& attention);

  // State slots of one kind.
  struct Slots {
    explicit Slots(int64_t count);

    ToyState& operator[](int32_t slot) { return states[static_cast<size_t>(slot)]; }

    void set(int32_t slot, const ToyState& value, bool has_memory);
    [[nodiscard]] int64_t num_in_use() const;

    std::vector<ToyState> states;
    std::vector<char> in_use;  // have memory: touched, not given back since
  };

  // Fills a snapshot slot, or a slot shared with snapshots: its hidden vector is gone.
  void set_snapshot(int32_t slot, const ToyState& value, bool has_memory);
  void set_working(int32_t slot, const ToyState& value, bool has_memory);
  void carry_out(const request::Move& move);

  [[nodiscard]] bool has_own_snapshot_slots() const { return sizes_.num_snapshot_slots > 0; }

  Slots& snapshots() { return has_own_snapshot_slots() ? own_snapshot_slots_ : states_; }

  ToyHidden& kept_hidden(int32_t slot) { return hidden_[static_cast<size_t>(slot)]; }

  runner::PoolSizes sizes_;
  request::StepLimits limits_;
  std::vector<std::vector<ToyRow>> kv_;  // by page table
  std::vector<int64_t> windows_;         // of tables 1 and up
  Slots states_;
  Slots own_snapshot_slots_;
  std::vector<ToyHidden> hidden_;  // beside each snapshot
  request::BatchSlots slots_;
  std::vector<DrawnToken> drawn_;        // by batch slot
  std::vector<KeptDrafts> kept_drafts_;  // likewise

  // After a node of the tree of the sequence at work.
  struct Node {
    ToyState state;
    ToyAttention attention;
    ToyRow row;
  };

  speculative::DraftTree tree_;  // of the sequence at work
  std::vector<Node> nodes_;
  std::vector<int32_t> path_;
  std::vector<char> page_in_use_;  // as Slots::in_use
  std::vector<std::string> complaints_;
  std::array<Flight, runner::kMaxStepsInFlight> flights_;
  int first_flight_ = 0;
  int num_in_flight_ = 0;
  std::vector<request::StepOutput> recycled_;
  int64_t num_steps_ = 0;
  int64_t num_verify_faults_ = 0;
  bool lost_ = false;  // a step failed
};

}  // namespace heddle::testing
