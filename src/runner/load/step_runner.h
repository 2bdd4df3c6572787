// SPDX-License-Identifier: Apache-2.0
// StepRunner: the Runner of a loaded model: on the CPU a thread that carries steps out, on a GPU
// steps that are enqueued behind each other.
//
// Threading: as Runner.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runner/drafting/draft_pass.h"
#include "runner/program/forward_pass.h"
#include "runner/runner.h"
#include "runner/step/device_steps.h"
#include "runner/step/following_ranks.h"
#include "runner/step/pools.h"
#include "runner/step/step_executor.h"
#include "runner/step/step_thread.h"

namespace heddle::runner {

// The maker of drafts for the steps of a runner, and its network; null: it has none.
struct LoadedDrafts {
  StepDrafts of_steps;
  DraftPass* pass = nullptr;
};

class StepRunner final : public Runner {
 public:
  // `pools`: of every rank of the pass. Error: kResourceExhausted.
  static Result<std::unique_ptr<Runner>> create(std::unique_ptr<ForwardPass> pass,
                                                std::vector<Pools> pools, const PoolSizes& sizes,
                                                const request::StepLimits& limits,
                                                int64_t context_length, LoadedDrafts drafts);

  [[nodiscard]] const PoolSizes& pool_sizes() const override { return sizes_; }

  [[nodiscard]] const request::StepLimits& step_limits() const override { return limits_; }

  Status submit(const request::BatchPlan& plan) override;
  Result<request::StepOutput> wait() override;
  [[nodiscard]] Result<std::unique_ptr<NewWeights>> read_weights(
      const WeightFolder& folder, const std::atomic<bool>& cancelled) const override;
  Status use_weights(const NewWeights& weights) override;
  void recycle(request::StepOutput output) override;

 private:
  StepRunner(std::unique_ptr<ForwardPass> pass, std::vector<Pools> pools, const PoolSizes& sizes,
             const request::StepLimits& limits, int64_t context_length, LoadedDrafts drafts);

  PoolSizes sizes_;
  request::StepLimits limits_;
  std::unique_ptr<ForwardPass> pass_;  // used by the step thread if there is one, as the executor
                                       // is
  DraftPass* draft_pass_;              // the executor's draft pass; null: none
  StepExecutor executor_;
  FollowingRanks others_;
  std::unique_ptr<StepThread> thread_;       // CPU only; destroyed before everything that it uses
  std::optional<DeviceSteps> device_steps_;  // other devices
};

}  // namespace heddle::runner
