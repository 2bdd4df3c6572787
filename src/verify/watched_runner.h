// SPDX-License-Identifier: Apache-2.0
// WatchedRunner: a Runner that passes all logits of each step to a callback before the next step
// overwrites them. It executes plans with the served model's StepExecutor, with small pools of its
// own and the caller's forward pass. In `heddle verify` and the whole-model tests, an engine uses
// it to show how a prefix cache affects logits.
//
// Threading: confined; a step is computed when it is submitted.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runner/program/forward_pass.h"
#include "runner/runner.h"
#include "runner/step/following_ranks.h"
#include "runner/step/step_executor.h"

namespace heddle::verify {

class WatchedRunner final : public runner::Runner {
 public:
  struct Options {
    int32_t num_sequences = 1;
    int64_t max_tokens = 0;  // the most tokens that one sequence can have
    int64_t num_cached_tokens = 0;
    int64_t num_cached_states = 0;
    int32_t page_size = 16;
    bool slides_apart = true;  // in a model with sliding and other layers, sliding layers have
                               // their own page group
    // Tokens for which sliding layers have pages beyond each running sequence's window: for cached
    // tokens, and for prompts whose steps need more than one page.
    int64_t num_cached_window_tokens = 0;
  };

  // Called once per sequence of the plan just computed. kComputed: the sequence's rows in the
  // pass's logits and hidden states begin at `first_row`. kHidden: `first_row` is its row in the
  // pass's head_logits().
  using Watch = std::function<void(const request::PlannedSequence& sequence,
                                   std::span<const TokenId> new_tokens,
                                   const runner::StepSequence& batched, int64_t first_row)>;

  // The pass must accept as many logit rows as tokens a step, have head_alone, and outlive the
  // runner. References passed to `watch` are valid only during the call.
  static Result<std::unique_ptr<WatchedRunner>> create(runner::ForwardPass& pass,
                                                       const Options& options, Watch watch);

  [[nodiscard]] const runner::PoolSizes& pool_sizes() const override { return sizes_; }

  [[nodiscard]] const request::StepLimits& step_limits() const override { return limits_; }

  Status submit(const request::BatchPlan& plan) override;
  Result<request::StepOutput> wait() override;

 private:
  // `pools`: of every rank of the pass.
  WatchedRunner(runner::ForwardPass& pass, std::vector<runner::Pools> pools,
                const runner::PoolSizes& sizes, int64_t max_tokens, Watch watch);

  runner::PoolSizes sizes_;
  request::StepLimits limits_;
  runner::StepExecutor executor_;
  runner::FollowingRanks others_;
  Watch watch_;
  // outputs of submitted steps that wait() has not returned
  std::deque<Result<request::StepOutput>> outputs_;
};

}  // namespace heddle::verify
