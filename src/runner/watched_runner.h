// SPDX-License-Identifier: Apache-2.0
// WatchedRunner: carries out plans as the served model does, over small pools of its own and a
// forward pass that belongs to somebody else, and shows all logits of each step before the next one
// overwrites them. `heddle verify` and the whole-model tests watch a prefix cache with it.
//
// Threading: confined; a step is computed when it is submitted.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "runner/forward_pass.h"
#include "runner/runner.h"
#include "runner/step_executor.h"

namespace heddle::runner {

class WatchedRunner final : public Runner {
 public:
  struct Options {
    int32_t num_sequences = 1;
    int64_t max_tokens = 0;  // of a sequence
    int64_t num_cached_tokens = 0;
    int64_t num_cached_states = 0;
    int32_t page_size = 16;
  };

  // A sequence of the plan just computed. kComputed: its rows in the pass's logits and hidden
  // states begin at `first_row`. kHidden: `first_row` is its row in the pass's head_logits().
  using Watch = std::function<void(const request::PlannedSequence& sequence,
                                   const BatchedSequence& batched, int64_t first_row)>;

  // The pass takes as many logit rows as tokens a step, has head_alone, and outlives the runner.
  // `watch` must not keep what it is shown.
  static Result<std::unique_ptr<WatchedRunner>> create(ForwardPass& pass, const Options& options,
                                                       Watch watch);

  [[nodiscard]] const PoolSizes& pool_sizes() const override { return sizes_; }

  Status submit(const request::BatchPlan& plan) override;
  Result<request::StepOutput> wait() override;

 private:
  WatchedRunner(ForwardPass& pass, Pools pools, const PoolSizes& sizes, int64_t max_tokens,
                Watch watch);

  PoolSizes sizes_;
  StepExecutor executor_;
  Watch watch_;
  std::deque<Result<request::StepOutput>> outputs_;  // of the steps in flight
};

}  // namespace heddle::runner
