// SPDX-License-Identifier: Apache-2.0
// ReadingRunner: a runner between the engine and another one, beside which a drafter reads texts
// for itself (runner/drafting/standalone_maker.h), now and then and not to their ends. It writes
// labels, each of a token and all before it, to the rows of its own in the pages of plans, and
// complains where a row that counts as written (runner/drafting/written_rows.h) is another text's,
// or may be read for one when it is written.
//
// Threading: as Runner.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "dice.h"
#include "request/batch_slots.h"
#include "runner/drafting/written_rows.h"
#include "runner/runner.h"

namespace heddle::oracle {

class ReadingRunner final : public runner::Runner {
 public:
  // Adds to `rows_taken` the tokens of texts whose rows others have written, and to `complaints`.
  ReadingRunner(std::unique_ptr<runner::Runner> runner, uint64_t seed, int64_t& rows_taken,
                std::vector<std::string>& complaints);

  [[nodiscard]] const runner::PoolSizes& pool_sizes() const override {
    return runner_->pool_sizes();
  }

  [[nodiscard]] const request::StepLimits& step_limits() const override {
    return runner_->step_limits();
  }

  Status submit(const request::BatchPlan& plan) override;
  Result<request::StepOutput> wait() override;

  void recycle(request::StepOutput output) override { runner_->recycle(std::move(output)); }

 private:
  // The text in a batch slot.
  struct Text {
    std::vector<uint64_t> labels;  // of its tokens, as far as they are known
    int64_t num_read = 0;

    void add(TokenId token);
  };

  Status follow(const request::BatchPlan& plan, const request::StepOutput& output);
  void start(const request::BatchPlan& plan, const request::SlotStart& start);
  void add(const request::PlannedSequence& sequence, int64_t position, TokenId token);
  void read(const request::PlannedSequence& sequence);
  void check(const request::PlannedSequence& sequence, int64_t num_rows);
  uint64_t& row(int32_t batch_slot, int64_t token);

  [[nodiscard]] Text& text(int32_t batch_slot) { return texts_[static_cast<size_t>(batch_slot)]; }

  std::unique_ptr<runner::Runner> runner_;
  Dice dice_;
  int64_t& rows_taken_;
  std::vector<std::string>& complaints_;
  std::deque<const request::BatchPlan*> plans_;  // in flight
  request::BatchSlots slots_;
  runner::WrittenRows written_;
  std::vector<uint64_t> rows_;  // by page and row: the label
  std::vector<Text> texts_;     // by batch slot
};

}  // namespace heddle::oracle
