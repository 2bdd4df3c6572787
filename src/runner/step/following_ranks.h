// SPDX-License-Identifier: Apache-2.0
// FollowingRanks: the ranks of a pass beside rank 0. Each has a StepExecutor and pools of its own
// and carries out the plans that rank 0's does; page and slot ids are equal on all of them. Rank
// 0's output counts, and a rank that draws another token ends them all.
//
// Threading: as StepExecutor, on the thread of rank 0.
#pragma once

#include <memory>
#include <vector>

#include "request/step_output.h"
#include "runner/step/step_executor.h"

namespace heddle::runner {

// Error: kDeviceLost, naming the first sequence for which rank `rank` drew other tokens than rank
// 0.
Status compare_draws(const request::StepOutput& first, const request::StepOutput& other,
                     int64_t rank);

class FollowingRanks {
 public:
  // None.
  FollowingRanks() = default;

  // `pools`: of every rank; those of rank 0, the first, are its executor's already. The other
  // arguments are that executor's, less what makes drafts. The pass outlives *this.
  FollowingRanks(ForwardPass& pass, std::vector<Pools> pools, const PoolSizes& sizes,
                 const request::StepLimits& limits, int64_t context_length, LogitRows logit_rows,
                 double simulated_acceptance = 0);

  ~FollowingRanks() {
    if (!empty()) pass_->wait_for_ranks();
  }

  FollowingRanks(FollowingRanks&&) = default;
  FollowingRanks& operator=(FollowingRanks&&) = delete;
  FollowingRanks(const FollowingRanks&) = delete;
  FollowingRanks& operator=(const FollowingRanks&) = delete;

  [[nodiscard]] bool empty() const { return executors_.empty(); }

  // As StepExecutor.
  Status prepare();

  // first.run() and that of all others. Errors: those of ForwardPass::on_every_rank(); kDeviceLost,
  // naming the sequence, where two ranks drew different tokens.
  Status run(StepExecutor& first, const request::BatchPlan& plan, request::StepOutput& output);

 private:
  ForwardPass* pass_ = nullptr;
  std::vector<std::unique_ptr<StepExecutor>> executors_;
  std::vector<request::StepOutput> outputs_;
};

}  // namespace heddle::runner
