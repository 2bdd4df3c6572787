// SPDX-License-Identifier: Apache-2.0
// DraftMaker: makes the drafts that a plan wants behind the draws of its step
// (PlannedSequence::wanted_drafts). All rows of the step go through the draft network, so that its
// keys and values cover what the model's do, and those behind which drafts are wanted choose the
// most likely token; further slots go on from it, one token of each sequence at a time.
//
// Rows of drafts that were rejected go through as well: what they write lies behind the text.
// A slot that stands for the last token of a cached prefix was written with the next token of
// another text; only the drafts after such a prefix may be worse for it.
//
// Threading: confined, as the passes. Cost: one step of the network of as many rows as the model's,
// and one of a row for each sequence and further draft; waits for the device once for each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "request/batch_plan.h"
#include "request/batch_slots.h"
#include "request/step_output.h"
#include "runner/device_sampling.h"
#include "runner/draft_pass.h"
#include "runner/forward_batch.h"
#include "runner/pools.h"

namespace heddle::runner {

class DraftMaker {
 public:
  // `max_pages`: of one sequence.
  static Result<std::unique_ptr<DraftMaker>> create(std::unique_ptr<DraftPass> pass,
                                                    ForwardPass& target, int64_t max_pages);

  // After the draws of a step: `batch` is what the target computed last, `output` has its tokens
  // and gets drafts.
  Status make(const request::BatchPlan& plan, const request::BatchSlots& slots,
              const ForwardBatch& batch, const Pools& pools, request::StepOutput& output);

  [[nodiscard]] const DraftPass& pass() const { return *pass_; }

 private:
  // A sequence that gets drafts.
  struct Stream {
    int64_t sequence_id = 0;
    const request::BatchSlot* slot = nullptr;
    int32_t row = 0;       // among the logits of the network's last step
    int64_t position = 0;  // of that step's slot
    int64_t wanted = 0;
    std::vector<TokenId> drafts;
  };

  DraftMaker(std::unique_ptr<DraftPass> pass, ForwardPass& target, int64_t max_pages);

  void lay_out_first(const request::BatchPlan& plan, const request::BatchSlots& slots,
                     const ForwardBatch& batch, const request::StepOutput& output);
  void lay_out_next(int32_t page_size);
  Status choose();

  std::unique_ptr<DraftPass> pass_;
  ForwardPass* target_;
  int64_t max_pages_;
  std::optional<DeviceSampling> device_sampling_;  // where logits are not the host's
  request::BatchSlot greedy_;
  std::vector<Stream> streams_;  // the first num_streams_
  size_t num_streams_ = 0;
  std::vector<size_t> going_on_;  // of them, in the network's last step
  std::vector<int32_t> ids_, positions_, logit_rows_, rows_;
  std::vector<int32_t> query_start_, context_lens_, page_table_;
};

}  // namespace heddle::runner
