// SPDX-License-Identifier: Apache-2.0
// load_model: makes a Runner that computes with real weights, according to the options: forward
// pass, pools sized to the remaining memory, sampler.
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
  EngineOptions options;  // the requested options, with values for all that was left to the runner
};

// Errors name the file, tensor or option at fault.
Result<LoadedModel> load_model(const EngineOptions& options);

}  // namespace heddle::runner
