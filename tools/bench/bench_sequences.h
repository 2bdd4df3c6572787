// SPDX-License-Identifier: Apache-2.0
// BenchSequences: a fixed number of sequences that a benchmark runs without a scheduler, in steps
// like those of a server: drafts are verified, and each sequence samples greedily, on the device if
// it can, so that logits are not read back.
//
// Threading: thread-confined.
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
    int64_t max_tokens = 0;  // limit for the tokens of a sequence, drafts included
    int64_t num_drafts = 0;  // most drafts of a sequence in a step
  };

  // The pass accepts a row of logits for each sequence and each of its drafts, and outlives the
  // object.
  static Result<BenchSequences> create(runner::ForwardPass& pass, const Options& options);

  struct Feed {
    int64_t sequence = 0;
    std::span<const TokenId> tokens;
    std::span<const TokenId> drafts = {};
    bool draws = true;  // false: a chunk of a prompt that is not the last one
  };

  // Begins a step, queued after the previous one if possible, and finishes the previous one.
  // Sequences continue after their accepted drafts.
  Status step(std::span<const Feed> feeds);

  // Finishes the step in flight.
  Status finish();

  // Empties a sequence, so that the next step begins it anew. No step is in flight.
  void restart(int64_t sequence) { lengths_[static_cast<size_t>(sequence)] = 0; }

 private:
  BenchSequences(const Options& options, std::unique_ptr<runner::StepExecutor> executor,
                 runner::FollowingRanks others, bool has_states, int64_t pages_per_sequence);

  // Sequences continue after the drafts of the plan that output_ has accepted.
  void take_accepted(const request::BatchPlan& plan);

  void start(request::BatchPlan& plan, int32_t slot);
  void plan_step(request::BatchPlan& plan, std::span<const Feed> feeds);

  // Plans of the steps, used in turn. Ranks may read them until `others_` is destroyed.
  std::array<request::BatchPlan, runner::kMaxStepsInFlight> plans_;
  std::unique_ptr<runner::StepExecutor> executor_;
  runner::FollowingRanks others_;  // with them a step ends before the next one begins
  bool has_states_;
  int64_t pages_per_sequence_;
  std::vector<int32_t> pages_;    // pages of the sequence that starts; kept to reuse its memory
  std::vector<int64_t> lengths_;  // number of tokens of each sequence
  size_t next_plan_ = 0;
  const request::BatchPlan* begun_ = nullptr;  // plan of the step in flight; null: none
  request::StepOutput output_;
};

}  // namespace heddle::tools
