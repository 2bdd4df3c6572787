// SPDX-License-Identifier: Apache-2.0
// From the options of an engine and the pools of its runner to the options of its scheduler.
#pragma once

#include <heddle/options.h>
#include <heddle/status.h>

#include "runner/runner.h"
#include "scheduler/batch_scheduler.h"

namespace heddle::engine {

// The policy of `options` is settled.
// Error: kInvalidArgument naming the option, its value and what it may be.
[[nodiscard]] Result<scheduler::BatchSchedulerOptions> scheduler_options(
    const EngineOptions& options, const runner::PoolSizes& sizes,
    const request::StepLimits& limits);

// Finds the errors that can be found before the model is loaded, which may take minutes. Errors:
// those of scheduler_options().
[[nodiscard]] Status check_options(const EngineOptions& options);

// Errors: those of scheduler_options().
[[nodiscard]] Status check_metrics_options(const MetricsOptions& options);

// Settles which policy the scheduler will follow: "priority" is fcfs with priorities, and a policy
// that needs the cache is fcfs without one. The same errors.
[[nodiscard]] Status settle_policy(EngineOptions& options);

}  // namespace heddle::engine
