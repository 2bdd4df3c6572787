// SPDX-License-Identifier: Apache-2.0
// FollowingRanks: all ranks of a ForwardPass except rank 0. Each has a StepExecutor and pools of
// its own and runs the same plans as rank 0, with the same page and slot ids. Only rank 0's output
// is used. If a rank draws another token than rank 0, all ranks end with an error.
//
// Threading: as StepExecutor, on the thread of rank 0.
#pragma once

#include <memory>
#include <vector>

#include "request/step_output.h"
#include "runner/step/step_executor.h"

namespace heddle::runner {

// Checks that rank `rank`, with the output `other`, drew the same tokens as rank 0. Error:
// kDeviceLost, naming the first sequence whose tokens differ.
Status compare_draws(const request::StepOutput& first, const request::StepOutput& other,
                     int64_t rank);

class FollowingRanks {
 public:
  // There are no ranks except rank 0.
  FollowingRanks() = default;

  // `pools` has an entry for each rank. That of rank 0 is not used, because its executor exists
  // already. The other arguments are those of rank 0's executor, except that nothing drafts here.
  // `pass` must outlive this object.
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

  // Calls StepExecutor::prepare() for each of these ranks.
  Status prepare();

  // Runs `plan` on all ranks; `first` is the executor of rank 0. Errors: those of
  // ForwardPass::on_every_rank(); kDeviceLost, naming the sequence, if a rank drew other tokens
  // than rank 0.
  Status run(StepExecutor& first, const request::BatchPlan& plan, request::StepOutput& output);

 private:
  ForwardPass* pass_ = nullptr;
  std::vector<std::unique_ptr<StepExecutor>> executors_;
  std::vector<request::StepOutput> outputs_;
};

}  // namespace heddle::runner
