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
// y and their slots. As gated_delta_rule(): advances slots, takes snapshots. `args` fits.
//
// Moves the state in and out once: 8 * Dk * Dv bytes a head and sequence. Floor for 128 sequences
// of 32 heads of 128 x 128: 537 MB, 128 us at 4.2 TB/s. Measured on an H200: 142 us; one sequence
// 5.8.
Status gated_delta_rule_step(CudaContext& context, const GatedDeltaRuleArgs& args);

}  // namespace heddle::ops
