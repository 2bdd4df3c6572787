// SPDX-License-Identifier: Apache-2.0
// BenchSequences: a fixed number of sequences that a benchmark feeds without a scheduler, in steps
// as a server makes them: drafts are verified, and each sequence draws greedily, on the device
// where it can, so that no logits leave it.
//
// Threading: confined.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "request/batch_plan.h"
#include "request/step_output.h"
#include "runner/program/forward_pass.h"
#include "runner/step/following_ranks.h"
#include "runner/step/step_executor.h"

namespace heddle::tools {

class BenchSequences {
 public:
  struct Options {
    int64_t num_sequences = 1;
    int64_t max_tokens = 0;  // per sequence, drafts included
    int64_t num_drafts = 0;  // per sequence of a step
  };

  // The pass takes a row of logits for each sequence and each of its drafts, and outlives this.
  static Result<BenchSequences> create(runner::ForwardPass& pass, const Options& options);

  struct Feed {
    int64_t sequence = 0;
    std::span<const TokenId> tokens;
    std::span<const TokenId> drafts = {};
    bool draws = true;  // false: a part of a prompt that is not its last
  };

  // Begins a step, queued after the previous one where possible, and finishes that one. Sequences
  // continue after their accepted drafts.
  Status step(std::span<const Feed> feeds);

  // Finishes the last step.
  Status finish();

  // The sequence begins anew, without tokens, in the next step. None is begun.
  void restart(int64_t sequence) { lengths_[static_cast<size_t>(sequence)] = 0; }

 private:
  BenchSequences(const Options& options, std::unique_ptr<runner::StepExecutor> executor,
                 runner::FollowingRanks others, bool has_states, int64_t pages_per_sequence);

  // Sequences continue after the drafts of the plan that output_ has accepted.
  void take_accepted(const request::BatchPlan& plan);

  void start(request::BatchPlan& plan, int32_t slot);
  void plan_step(request::BatchPlan& plan, std::span<const Feed> feeds);

  std::unique_ptr<runner::StepExecutor> executor_;
  runner::FollowingRanks others_;  // with them a step ends before the next one begins
  bool has_states_;
  int64_t pages_per_sequence_;
  std::vector<int32_t> pages_;    // scratch: pages of the sequence that starts
  std::vector<int64_t> lengths_;  // tokens of each sequence
  std::array<request::BatchPlan, runner::kMaxStepsInFlight> plans_;  // used in turn
  size_t next_plan_ = 0;
  const request::BatchPlan* begun_ = nullptr;  // the unfinished step
  request::StepOutput output_;
};

}  // namespace heddle::tools
