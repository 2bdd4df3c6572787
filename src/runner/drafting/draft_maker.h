// SPDX-License-Identifier: Apache-2.0
// DraftMaker: makes the drafts that a plan wants after the draws of its step
// (PlannedSequence::wanted_drafts) with a draft network. All rows of the step go through the
// network. For the sequences that want drafts it then continues:
//
//   chains  with the most likely token, one slot of each sequence at a time; tokens stay on the
//           device, and the host reads all of them together
//   trees   with the best branches of a level (speculative/tree_growth.h), each of which sees only
//           its own ancestors; their slots are next to each other after the text
//
// Rows of rejected drafts also go through the network: they write KV after the end of the text, as
// do the slots of branches; both are overwritten by the next step. The network's KV has gaps where
// steps did not go through it (BatchPlan::computes_draft_slots), and the slot for the last token of
// a cached prefix was computed with the next token of another sequence. Later drafts may be worse
// for that; texts are not affected.
//
// On a GPU the device goes from level to level without the host (device_trees.h). If plans allow
// it, drafts are kept (kept_drafts.h): the next step reads a chain's tokens on the device, and the
// host does not wait here.
//
// Drafting may begin before the host knows the drawn tokens and how many of the earlier drafts were
// accepted. Slots are then laid out as if all were accepted, and the device moves positions back
// where they were not.
//
// Threading: confined to one thread, like the passes. Cost: one step of the network with as many
// rows as the model's, and one for each further level with one row for each sequence and branch.
// Waits for the device once for trees, and for chains that are not kept.
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
  // `max_pages`: most pages of a sequence. `shape`: shape of the trees; its number of drafts is
  // also the most that a plan wants in a chain.
  static Result<std::unique_ptr<DraftMaker>> create(std::unique_ptr<DraftPass> pass,
                                                    ForwardPass& target, int64_t max_pages,
                                                    const speculative::TreeShape& shape);

  // Its slots come after those of a step that goes through the network, so it reads the batch slots
  // again.
  [[nodiscard]] bool reads_texts(const request::BatchPlan& plan) const override {
    return plan.computes_draft_slots;
  }

  [[nodiscard]] bool keeps_drafts() const override { return true; }

  Status begin(const DraftedStep& step) override;

  // True for chains made on the device, if the plan lets the runner keep all its drafts.
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
  // A sequence that gets drafts.
  struct Stream {
    const StepSequence* sequence = nullptr;
    int32_t row = 0;       // its first row among the logits of the network's last step
    int64_t position = 0;  // position of that step; with a tree: last position of the text
    // If begun ahead: index in missing_ of the number of rejected drafts, by which the device moves
    // the position back.
    int32_t missing_of = ops::FedRow::kNothing;
    std::vector<int32_t> places;     // in a chain: GreedyTokens::place() of each draft
    speculative::TreeGrowth growth;  // the growing tree, if the host grows it
    std::vector<uint64_t> masks;     // in such a tree, by branch: the positions after the text that
                                     // the branch sees
    int32_t num_levels = 0;          // levels of the tree so far, if the device grows it
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
  std::optional<GreedyTokens> greedy_tokens_;  // used for chains of drafts
  std::optional<DrawnFeed> feed_;              // used if the logits are on the device
  std::optional<DrawnFeed> first_feed_;        // used for chains on the device, by steps begun
                                               // ahead
  const int32_t* missing_ = nullptr;           // not null if the step was begun ahead
  std::optional<DeviceTrees> trees_;           // used for trees, if the logits are on the device
  std::vector<ops::GrownTree> grown_;
  std::vector<ops::SelectedTree> selected_;
  bool begun_ = false;
  bool warmed_up_ = false;  // a step of the network was a warm-up
  bool may_keep_ = false;   // all drafts of the step may be kept
  int32_t page_size_ = 0;
  std::vector<Stream> streams_;  // only the first num_streams_ are in use
  size_t num_streams_ = 0;
  std::vector<size_t> going_on_;  // indices of the streams in the network's last step
  std::vector<int32_t> ids_, positions_, logit_rows_, rows_;
  std::vector<int32_t> query_start_, context_lens_, page_table_;
  std::vector<int32_t> tree_starts_;
  std::vector<uint64_t> tree_masks_, next_masks_;
  std::vector<speculative::Candidate> candidates_;  // [rows, topk], by row of the network's last
                                                    // step
  std::vector<speculative::Candidate> of_row_;
  speculative::Drafts drafts_;
};

}  // namespace heddle::runner
