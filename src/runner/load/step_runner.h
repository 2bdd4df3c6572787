// SPDX-License-Identifier: Apache-2.0
// StepRunner: the Runner of a loaded model: on the CPU with a thread that runs steps, on a GPU with
// steps that are enqueued one after the other.
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

// The maker of drafts for a runner's steps, and its network; null: there is none.
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

  [[nodiscard]] Result<Adapter> load_adapter(int32_t slot,
                                             const std::filesystem::path& folder) const override {
    return pass_->load_adapter(slot, folder);
  }

  void recycle(request::StepOutput output) override;

 private:
  StepRunner(std::unique_ptr<ForwardPass> pass, std::vector<Pools> pools, const PoolSizes& sizes,
             const request::StepLimits& limits, int64_t context_length, LoadedDrafts drafts,
             double simulated_acceptance);

  PoolSizes sizes_;
  request::StepLimits limits_;
  std::unique_ptr<ForwardPass> pass_;  // used by the step thread if there is one, as is the
                                       // executor
  DraftPass* draft_pass_;              // the draft network of the executor's drafts; null: there is
                                       // none
  StepExecutor executor_;
  FollowingRanks others_;
  std::unique_ptr<StepThread> thread_;       // CPU only; destroyed before everything that it uses
  std::optional<DeviceSteps> device_steps_;  // used on devices other than the CPU
};

}  // namespace heddle::runner
