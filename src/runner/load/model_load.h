// SPDX-License-Identifier: Apache-2.0
// ModelLoad: the steps from options to a model that computes on one device:
//
//   choose()       the drafter, the rounding of weights, the size of a step
//   load_target()  weights and program of the model
//   load_drafter() weights and program of the draft network or standalone draft model
//   plan_memory()  pages and states for the remaining memory
//   start()        pools, the maker of drafts, and the runner that uses them
//
// If the options let the runner decide whether something drafts, a drafter that cannot be loaded or
// leaves no room is left out, with a reason for the log.
//
// Threading: confined to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <heddle/options.h>

#include "checkpoint/model_config.h"
#include "checkpoint/packed_load.h"
#include "models/cache_needs.h"
#include "runner/drafting/draft_pass.h"
#include "runner/load/cache_plan.h"
#include "runner/load/choose_device.h"
#include "runner/load/choose_drafts.h"
#include "runner/load/model_runner.h"
#include "runner/load/step_runner.h"
#include "runner/program/forward_pass.h"

namespace heddle::runner {

class ModelLoad {
 public:
  // `options` must have been checked.
  ModelLoad(const EngineOptions& options, ChosenDevice device);

  // Loads the model. May be called once. Errors name the file, tensor or option at fault.
  Result<LoadedModel> run();

 private:
  Status choose();
  Status load_target();
  Status load_drafter();
  Status load_small_model();
  Status load_draft_pass();
  Status plan_memory();
  Result<PlannedPools> plan_pools_once();
  Status leave_out_drafts(Status failed);
  Result<std::vector<Pools>> make_pools() const;  // by rank
  Result<LoadedDrafts> make_drafting();
  Result<ModelInfo> describe_model() const;
  [[nodiscard]] MemoryPlan describe_memory() const;
  [[nodiscard]] EngineOptions settled_options(const MemoryPlan& plan) const;
  Result<LoadedModel> start();

  [[nodiscard]] bool is_dummy() const { return options_.load_format == LoadFormat::kDummy; }

  [[nodiscard]] bool chooses_drafts() const {
    return asked_.speculative.algorithm == DraftAlgorithm::kAuto;
  }

  const EngineOptions asked_;
  EngineOptions options_;  // the options with the runner's choices filled in
  ChosenDevice device_;
  DeviceDefaults defaults_;
  int64_t free_before_ = 0;  // free memory of a GPU before loading
  ChosenDrafts drafts_;
  std::optional<checkpoint::Rounding> rounding_;
  ForwardOptions forward_;  // options of the model's pass, except for the rows that score
  std::unique_ptr<ForwardPass> pass_;
  std::unique_ptr<ForwardPass> small_model_;  // at most one of small_model_ and draft_pass_ is set
  std::unique_ptr<DraftPass> draft_pass_;
  std::optional<models::CacheNeeds> draft_needs_;  // pages and states that the drafter needs
  PlannedPools planned_;
  PoolSizes sizes_;
  request::StepLimits limits_;
  int64_t max_scored_rows_ = 0;
};

}  // namespace heddle::runner
