// SPDX-License-Identifier: Apache-2.0
// The gated delta rule for decode, in bf16 with keys of 128: the recurrence of
// gated_delta_rule_cuda.cu, with loads of whole cache lines that are all in flight at once. Sums
// have another order, so fast mode only.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/linear_attention/gated_delta_rule.h"

namespace heddle::ops {

// Most new tokens of a sequence that this kernel computes; other kernels compute longer sequences.
inline constexpr int64_t kStepMostTokens = 8;

// Whether the kernel supports these arguments: bf16, Dk 128, Dv a multiple of 64, one decay for a
// head.
[[nodiscard]] bool gated_delta_rule_step_fits(const CudaContext& context,
                                              const GatedDeltaRuleArgs& args);

// Computes the sequences of at most kStepMostTokens rows and does not touch the rows of y and the
// state slots of the others. Advances slots and takes snapshots like gated_delta_rule(). `args`
// must satisfy gated_delta_rule_step_fits(). States are read before the previous kernel of the CUDA
// stream has ended, so that kernel must not write any of them. In every model that uses this op,
// the previous kernel is the convolution.
//
// Reads and writes each state once: 8 * Dk * Dv bytes a head and sequence. Floor for 128 sequences
// of 32 heads of 128 x 128: 537 MB, 128 us at 4.2 TB/s, the rate of copies, or 135 at 3.98, the
// rate of a kernel that only scales numbers in place. Predicted with loads before the wait: 4 us
// for one sequence, 142 for 128. Measured on an H200: 3.6 us for one sequence, 39 for 32, 144 for
// 128, 284 for 256.
Status gated_delta_rule_step(CudaContext& context, const GatedDeltaRuleArgs& args);

}  // namespace heddle::ops
