// SPDX-License-Identifier: Apache-2.0
#include "runner/step/following_ranks.h"

#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::runner {

Status compare_draws(const request::StepOutput& first, const request::StepOutput& other,
                     int64_t rank) {
  if (other.tokens.size() != first.tokens.size()) {
    return device_lost(fmt::format("rank {} drew {} tokens, rank 0 {}", rank, other.tokens.size(),
                                   first.tokens.size()));
  }
  for (size_t i = 0; i < first.tokens.size(); ++i) {
    const request::SampledToken &own = first.tokens[i], &theirs = other.tokens[i];
    if (theirs.token == own.token && theirs.skipped == own.skipped) continue;
    return device_lost(fmt::format("rank {} drew token {} for sequence {}, rank 0 token {}", rank,
                                   theirs.token, own.sequence_id, own.token));
  }
  return {};
}

FollowingRanks::FollowingRanks(ForwardPass& pass, std::vector<Pools> pools, const PoolSizes& sizes,
                               const request::StepLimits& limits, int64_t context_length,
                               LogitRows logit_rows, double simulated_acceptance)
    : pass_(&pass), outputs_(pools.size() - 1) {
  HEDDLE_CHECK_EQ(static_cast<int64_t>(pools.size()), pass.num_ranks());
  for (int64_t rank = 1; rank < pass.num_ranks(); ++rank) {
    StepDrafts drafts;
    drafts.simulated_acceptance = simulated_acceptance;
    executors_.push_back(std::make_unique<StepExecutor>(
        pass.of_rank(rank), std::move(pools[static_cast<size_t>(rank)]), sizes, limits,
        context_length, logit_rows, std::move(drafts)));
  }
}

Status FollowingRanks::prepare() {
  for (const auto& executor : executors_) HEDDLE_RETURN_IF_ERROR(executor->prepare());
  return {};
}

Status FollowingRanks::run(StepExecutor& first, const request::BatchPlan& plan,
                           request::StepOutput& output) {
  if (executors_.empty()) return first.run(plan, output);
  HEDDLE_RETURN_IF_ERROR(
      pass_->on_every_rank([this, &first, &plan, &output](ForwardPass&, int64_t rank) {
        if (rank == 0) return first.run(plan, output);
        const auto index = static_cast<size_t>(rank - 1);
        outputs_[index].clear();
        return executors_[index]->run(plan, outputs_[index]);
      }));
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Status same = compare_draws(output, outputs_[i], static_cast<int64_t>(i) + 1);
    if (!same.ok()) return pass_->end_ranks(same);
  }
  return {};
}

}  // namespace heddle::runner
