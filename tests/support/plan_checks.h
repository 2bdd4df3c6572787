// SPDX-License-Identifier: Apache-2.0
// Faults of a BatchPlan that can be found without knowing the contents of its pages and slots: ids
// out of range, more than a step may have, and pages or slots that one sequence writes while
// another uses them.
//
// Threading: a pure function.
#pragma once

#include <string>
#include <vector>

#include "request/batch_slots.h"
#include "runner/runner.h"

namespace heddle::testing {

// `slots` has taken the plan over. Appends one sentence per fault. False: ids are out of range or
// missing, so that no device could carry the plan out.
bool check_plan(const request::BatchPlan& plan, const runner::PoolSizes& sizes,
                const request::StepLimits& limits, const request::BatchSlots& slots,
                std::vector<std::string>& complaints);

}  // namespace heddle::testing
