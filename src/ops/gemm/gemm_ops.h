// SPDX-License-Identifier: Apache-2.0
// The matrix products as ops of a graph.
//     "linear"      {x [T, K], weight [N, K]} -> [T, N]
//     "linear_bias" {x [T, K], weight [N, K], bias [N] f32} -> [T, N]
#pragma once

#include "ops/op_def.h"

namespace heddle::ops {

std::span<const OpDef> gemm_ops();

}  // namespace heddle::ops
