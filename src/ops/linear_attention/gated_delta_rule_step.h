// SPDX-License-Identifier: Apache-2.0
// The gated delta rule for decode, in bf16 with keys of 128: the same recurrence as the plain form
// (gated_delta_rule_cuda.cu) with loads of whole lines and all of them under way at once. Sums run
// in another order, so fast mode only.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/linear_attention/gated_delta_rule.h"

namespace heddle::ops {

// Sequences with more new tokens are left to the other forms.
inline constexpr int64_t kStepMostTokens = 8;

// Whether the arguments have this form: bf16, Dk 128, Dv a multiple of 64, one decay for a head.
[[nodiscard]] bool gated_delta_rule_step_fits(const CudaContext& context,
                                              const GatedDeltaRuleArgs& args);

// Computes the sequences of at most kStepMostTokens rows and leaves all others alone: their rows of
// y and their slots. As gated_delta_rule(): advances slots, takes snapshots. `args` fits. States
// are read before the previous kernel of the stream has ended, so that kernel must not write any of
// them. The convolution runs in between wherever a model uses this op.
//
// Moves the state in and out once: 8 * Dk * Dv bytes a head and sequence. Floor for 128 sequences
// of 32 heads of 128 x 128: 537 MB, 128 us at 4.2 TB/s, the rate of copies, or 135 at 3.98, which a
// kernel that only scales numbers in place reaches. Predicted with loads before the wait: 4 us for
// one sequence, 142 for 128. Measured on an H200: 3.6 us for one sequence, 39 for 32, 144 for 128,
// 284 for 256.
Status gated_delta_rule_step(CudaContext& context, const GatedDeltaRuleArgs& args);

}  // namespace heddle::ops
