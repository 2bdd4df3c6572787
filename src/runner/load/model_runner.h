// SPDX-License-Identifier: Apache-2.0
// load_model: from options to a Runner that computes with real weights: forward pass, pools sized
// from the memory that is left, sampler.
#pragma once

#include <memory>

#include <heddle/engine.h>
#include <heddle/options.h>

#include "runner/runner.h"

namespace heddle::runner {

struct LoadedModel {
  std::unique_ptr<Runner> runner;
  ModelInfo info;
  MemoryPlan plan;
  EngineOptions options;  // as asked, and what became of all that was left to the runner
};

// Errors name the file, tensor or option at fault.
Result<LoadedModel> load_model(const EngineOptions& options);

}  // namespace heddle::runner
