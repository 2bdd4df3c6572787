// SPDX-License-Identifier: Apache-2.0
// Converts the options of an engine and the pools of its runner to the options of its scheduler.
#pragma once

#include <heddle/options.h>
#include <heddle/status.h>

#include "runner/runner.h"
#include "scheduler/batch_scheduler.h"

namespace heddle::engine {

// The options of the scheduler. `options` has been through settle_policy().
// Error: kInvalidArgument naming the option, its value and the allowed values.
[[nodiscard]] Result<scheduler::BatchSchedulerOptions> scheduler_options(
    const EngineOptions& options, const runner::PoolSizes& sizes,
    const request::StepLimits& limits);

// Finds the errors that need no loaded model, because loading may take minutes. Errors: those of
// scheduler_options().
[[nodiscard]] Status check_options(const EngineOptions& options);

// Checks the options of metrics. Errors: those of scheduler_options().
[[nodiscard]] Status check_metrics_options(const MetricsOptions& options);

// Replaces the policy by the one that the scheduler will follow: "priority" becomes fcfs with
// priorities, and without a cache a policy that needs it becomes fcfs. Errors: those of
// scheduler_options().
[[nodiscard]] Status settle_policy(EngineOptions& options);

}  // namespace heddle::engine
