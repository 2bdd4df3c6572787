// SPDX-License-Identifier: Apache-2.0
// DraftMaker: makes the drafts that a plan wants behind the draws of its step
// (PlannedSequence::wanted_drafts). All rows of such a step go through the draft network. Behind
// those where drafts are wanted it goes on:
//
//   chains  with the most likely token, one slot of each sequence at a time; the device hands
//           it on, the host learns all of them together
//   trees   with the best branches of a level (speculative/tree_growth.h), each of which sees
//           its own ancestors; their slots lie beside each other behind the text
//
// Rows of drafts that were rejected go through as well: what they write lies behind the text. So do
// the slots of branches; both are written over by the next step.
// The network's keys and values have holes where steps did not go through it
// (BatchPlan::computes_draft_slots), and the slot that stands for the last token of a cached prefix
// was written with the next token of another text. Drafts behind them may be worse, no text is.
//
// A GPU goes from level to level by itself (device_trees.h). Where plans allow it, drafts are kept
// (kept_drafts.h): the next step finds a chain's tokens on the device, and the host waits for
// nothing here.
//
// It may begin before the host knows what was drawn, and how many of the drafts before held. Its
// slots are laid out then as if all had; places that depend on it move back on the device.
//
// Threading: confined, as the passes. Cost: one step of the network of as many rows as the model's,
// and one for each further level, of a row for each sequence and branch; waits for the device once
// for trees, and for chains that are not kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "request/batch_plan.h"
#include "request/batch_slots.h"
#include "request/step_output.h"
#include "runner/drafting/device_trees.h"
#include "runner/drafting/draft_pass.h"
#include "runner/drafting/greedy_tokens.h"
#include "runner/program/drawn_feed.h"
#include "runner/step/drafting.h"
#include "runner/step/forward_batch.h"
#include "runner/step/kept_drafts.h"
#include "runner/step/pools.h"
#include "speculative/tree_growth.h"

namespace heddle::runner {

class DraftMaker : public Drafting {
 public:
  // `max_pages`: of one sequence. `shape`: of trees; plans want at most its number of drafts, also
  // of a chain.
  static Result<std::unique_ptr<DraftMaker>> create(std::unique_ptr<DraftPass> pass,
                                                    ForwardPass& target, int64_t max_pages,
                                                    const speculative::TreeShape& shape);

  // Its own slots come after those of a step that it computes.
  [[nodiscard]] bool reads_texts(const request::BatchPlan& plan) const override {
    return plan.computes_draft_slots;
  }

  [[nodiscard]] bool keeps_drafts() const override { return true; }

  Status begin(const DraftedStep& step) override;

  // Chains that the device makes, where it may keep all that the plan wants.
  [[nodiscard]] bool can_begin_ahead(const request::BatchPlan& plan,
                                     const StepNeeds& needs) const override {
    return first_feed_.has_value() && plan.computes_draft_slots && needs.may_keep_drafts;
  }

  Status begin_ahead(const DraftedStep& step, const int32_t* drawn,
                     const int32_t* missing) override;
  Status go_on(const Pools& pools) override;
  Status finish(const DraftedStep& step, KeptDrafts& kept, request::StepOutput& output) override;
  void read_back(KeptDrafts& kept) const override;

  [[nodiscard]] const int32_t* kept_on_device() const override { return greedy_tokens_->drawn(); }

  [[nodiscard]] const int32_t* target_ids_on_device() const override {
    return pass_->device_target_ids();
  }

  [[nodiscard]] const DraftPass& pass() const { return *pass_; }

 private:
  // A sequence that drafts are made for.
  struct Stream {
    const StepSequence* sequence = nullptr;
    int32_t row = 0;       // first of its rows among the logits of the network's last step
    int64_t position = 0;  // that step's position; for a tree: the text's last position
    int32_t missing_of = ops::FedRow::kNothing;  // begun ahead: position moves back by it
    std::vector<int32_t> places;                 // chains: GreedyTokens::place() of each draft
    speculative::TreeGrowth growth;              // for a tree that the host grows
    std::vector<uint64_t> masks;  // per branch of it: the positions after the text that it sees
    int32_t num_levels = 0;       // for a tree that the device grows
  };

  DraftMaker(std::unique_ptr<DraftPass> pass, ForwardPass& target, int64_t max_pages,
             const speculative::TreeShape& shape);

  void lay_out_first(const DraftedStep& step);
  void begin_first(const ForwardBatch& batch);
  [[nodiscard]] bool drafts_behind(const StepSequence& sequence) const;
  Stream& add_stream(const StepSequence& sequence, int64_t row);
  void lay_out_ahead(const DraftedStep& step, const int32_t* drawn, const int32_t* missing);
  Status enqueue_first(const ForwardBatch& batch, const Pools& pools, DrawnFeed* feed);
  Status make_chains(const ops::ForwardContext& forward);
  [[nodiscard]] TokenId as_draft(TokenId chosen) const;
  void finish(Stream& stream, KeptDrafts& kept, request::StepOutput& output);
  Status make_trees(const ops::ForwardContext& forward);
  Status make_trees_on_device(const ops::ForwardContext& forward);
  [[nodiscard]] ops::ForwardContext laid_out(const ops::ForwardContext& forward) const;
  void begin_layout();
  bool add_pages(const Stream& stream, int64_t end, int32_t page_size);
  void lay_out_next(int32_t page_size);
  void lay_out_level(int32_t level, int32_t page_size);
  void lay_out_branches(Stream& stream, int32_t level);
  Status enqueue_next(const ops::ForwardContext& forward, DrawnFeed* feed);
  Status find_candidates(int64_t num_rows);

  [[nodiscard]] std::span<const speculative::Candidate> candidates_of(int32_t row,
                                                                      size_t num_rows) const;

  std::unique_ptr<DraftPass> pass_;
  ForwardPass* target_;
  int64_t max_pages_;
  speculative::TreeShape shape_;
  std::optional<GreedyTokens> greedy_tokens_;  // for chains
  std::optional<DrawnFeed> feed_;              // if the logits are on the device
  std::optional<DrawnFeed> first_feed_;        // likewise, for chains: used by steps begun ahead
  const int32_t* missing_ = nullptr;           // set if the step was begun ahead
  std::optional<DeviceTrees> trees_;           // if the logits are on the device
  std::vector<ops::GrownTree> grown_;
  std::vector<ops::SelectedTree> selected_;
  bool begun_ = false;
  bool warmed_up_ = false;  // a step of the network was a warm-up
  bool may_keep_ = false;   // may keep all drafts of the step
  int32_t page_size_ = 0;
  std::vector<Stream> streams_;  // the first num_streams_ are in use
  size_t num_streams_ = 0;
  std::vector<size_t> going_on_;  // indices of streams in the network's last step
  std::vector<int32_t> ids_, positions_, logit_rows_, rows_;
  std::vector<int32_t> query_start_, context_lens_, page_table_;
  std::vector<int32_t> tree_starts_;
  std::vector<uint64_t> tree_masks_, next_masks_;
  std::vector<speculative::Candidate> candidates_;  // [rows, topk]
  std::vector<speculative::Candidate> of_row_;
  speculative::Drafts drafts_;
};

}  // namespace heddle::runner
