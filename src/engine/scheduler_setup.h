// SPDX-License-Identifier: Apache-2.0
// From what an engine was told and the pools its runner has to the options of its scheduler.
#pragma once

#include <heddle/options.h>
#include <heddle/status.h>

#include "runner/runner.h"
#include "scheduler/batch_scheduler.h"

namespace heddle::engine {

// The policy of `options` is settled.
// Error: kInvalidArgument naming the option, its value and what it may be.
[[nodiscard]] Result<scheduler::BatchSchedulerOptions> scheduler_options(
    const EngineOptions& options, const runner::PoolSizes& sizes);

// What can be known to be wrong before the model is loaded, which may take minutes. The same
// errors.
[[nodiscard]] Status check_options(const EngineOptions& options);

// Writes down which policy the scheduler will follow: "priority" is fcfs with priorities, and a
// policy that asks the cache is fcfs without one. The same errors.
[[nodiscard]] Status settle_policy(EngineOptions& options);

}  // namespace heddle::engine
