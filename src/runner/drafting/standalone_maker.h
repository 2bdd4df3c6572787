// SPDX-License-Identifier: Apache-2.0
// StandaloneMaker: makes the drafts that a plan wants (PlannedSequence::wanted_drafts) with a whole
// small model of the same vocabulary. It reads the tokens of the model's sequences, including the
// drawn ones, and continues with its own most likely tokens, one of each sequence at a time.
//
//   note()      for every step: records which tokens are known, and their pages
//   read()      computes known tokens not read yet, in one step of the small model; a text that is
//               read to its end gets its first draft
//   guess_on()  the other drafts, one step of the small model for each; a device passes its
//               guesses on without the host
//   list()      adds the drafts to the output
//
// A text may be partly unread: after a cached prefix that the small model did not read, or after
// steps that wanted no drafts. It must be read before it gets drafts, at most one step of the small
// model with each step of the model, so that one long text does not stop the others.
//
// Its KV is in the model's pages. KV of its guesses is after the end of the text and overwritten by
// the next tokens. KV that was written for the same text in a shared page is used, also if another
// sequence writes it meanwhile (written_rows.h). Its recurrent states are its own, one for each
// batch slot. A state advances over tokens of the text only, and guesses advance a copy, so that
// nothing must be undone. The states are not part of the prefix cache: a small model with states
// reads a cached prefix again.
//
// Threading: confined to one thread, like the passes. Cost: waits for the device once a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/pool_sizes.h"
#include "request/batch_plan.h"
#include "request/batch_slots.h"
#include "request/step_output.h"
#include "runner/drafting/greedy_tokens.h"
#include "runner/drafting/written_rows.h"
#include "runner/program/drawn_feed.h"
#include "runner/program/forward_pass.h"
#include "runner/step/drafting.h"
#include "runner/step/forward_batch.h"
#include "runner/step/pools.h"

namespace heddle::runner {

class StandaloneMaker : public Drafting {
 public:
  // `sizes` are those of the model's pools, which must have draft layers for the pass
  // (PoolsOptions::draft_needs). The model draws tokens below `vocab_size`; its sequences have at
  // most `max_pages` pages. Error: kResourceExhausted.
  static Result<std::unique_ptr<StandaloneMaker>> create(std::unique_ptr<ForwardPass> pass,
                                                         const cache::PoolSizes& sizes,
                                                         int64_t max_drafts, int64_t vocab_size,
                                                         int64_t max_pages);

  // It reads the tokens that each step computed and drew.
  [[nodiscard]] bool reads_texts(const request::BatchPlan&) const override { return true; }

  [[nodiscard]] bool keeps_drafts() const override { return false; }

  Status begin(const DraftedStep&) override { return {}; }

  // False: it needs tokens that the host knows.
  [[nodiscard]] bool can_begin_ahead(const request::BatchPlan&, const StepNeeds&) const override {
    return false;
  }

  Status begin_ahead(const DraftedStep&, const int32_t*, const int32_t*) override {
    return unimplemented("a small model drafts behind tokens that the host knows");
  }

  Status go_on(const Pools&) override { return {}; }

  Status finish(const DraftedStep& step, KeptDrafts& kept, request::StepOutput& output) override;

  // Does nothing: it keeps no drafts.
  void read_back(KeptDrafts&) const override {}

  [[nodiscard]] const int32_t* kept_on_device() const override { return nullptr; }

  [[nodiscard]] const int32_t* target_ids_on_device() const override { return nullptr; }

 private:
  // The tokens of the sequence in a batch slot that the small model has read, and those it has not.
  struct Text {
    int64_t num_read = 0;         // tokens whose KV and state are computed
    std::vector<TokenId> unread;  // the tokens after them, as far as they are known
    int64_t end = 0;              // the small model reads no tokens from this position on
    bool state_is_old = false;    // the state belongs to an earlier sequence

    [[nodiscard]] int64_t num_known() const { return num_read + std::ssize(unread); }
  };

  // A sequence that gets drafts in this step.
  struct Stream {
    const StepSequence* sequence = nullptr;
    int32_t guess_state = 0;      // state slot for the copy of its state
    int32_t row = 0;              // its row among the logits of the last step
    std::vector<int32_t> places;  // indices of its drafts: GreedyTokens::place()
    TokenId last_draft = 0;       // the last draft, if the host knows it
  };

  // The rows of a sequence in a step of the pass.
  struct Rows {
    const StepSequence* sequence = nullptr;
    int64_t position = 0;
    std::span<const TokenId> tokens;
    int64_t kv_tokens = 0;  // rows before this token are written already
    int32_t state_slot = 0;
    Stream* stream = nullptr;  // gets the token that is drawn next; null: none does
  };

  StandaloneMaker(std::unique_ptr<ForwardPass> pass, const cache::PoolSizes& sizes,
                  int64_t vocab_size, int64_t max_pages);

  void note(const DraftedStep& step);
  void start(const DraftedStep& step, const request::SlotStart& start);
  void add(Text& text, int64_t position, TokenId token) const;
  Status zero_states();
  Status read(const DraftedStep& step, request::StepOutput& output);
  bool list_unread(std::span<const StepSequence> sequences);
  void pass_over_written(Text& text, std::span<const int32_t> pages) const;
  void lay_out_unread();
  [[nodiscard]] bool claim_pages(std::span<const int32_t> pages, int64_t begin, int64_t end);
  Status guess_on(const Pools& pools, request::StepOutput& output);
  Status copy_states();
  [[nodiscard]] int64_t room(const request::BatchSlot& slot) const;
  Status run(const Pools& pools, request::StepOutput& output, DrawnFeed* feed);
  Status list(request::StepOutput& output);
  [[nodiscard]] bool is_draft(TokenId token) const;

  [[nodiscard]] Text& text(const StepSequence& sequence) {
    return texts_[static_cast<size_t>(sequence.planned->batch_slot)];
  }

  [[nodiscard]] static int32_t state_of(int32_t batch_slot) { return batch_slot + 1; }

  std::unique_ptr<ForwardPass> pass_;
  std::optional<Pools> states_;  // none: the small model has no states
  std::optional<GreedyTokens> greedy_tokens_;
  std::optional<DrawnFeed> feed_;  // used if the host does not read the logits
  WrittenRows written_;
  int32_t page_size_;
  int64_t max_pages_;
  int64_t max_tokens_;           // longest text that the small model reads
  int64_t vocab_size_;           // vocabulary that both models share
  std::vector<Text> texts_;      // by batch slot: what was read of its sequence
  std::vector<Stream> streams_;  // only the first num_streams_ are in use
  size_t num_streams_ = 0;
  std::vector<Stream*> going_on_;
  std::vector<Rows> unread_;      // the unread tokens of the step's texts, the shortest first
  std::vector<Rows> rows_;        // rows of one step of the pass
  std::vector<int64_t> claimed_;  // by page: number of the read() that writes it
  int64_t num_reads_ = 0;
  std::vector<int32_t> ids_, positions_, query_start_, context_lens_, kv_lens_, page_table_,
      state_slots_, logit_rows_;
  std::vector<request::Move> fresh_states_;
  std::vector<ops::IdCopy> copies_;
};

}  // namespace heddle::runner
