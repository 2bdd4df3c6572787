// SPDX-License-Identifier: Apache-2.0
// The matrix products as ops of a graph.
//     "linear" {x [T, K], weight [N, K]} -> [T, N]
#pragma once

#include "ops/op_def.h"

namespace heddle::ops {

std::span<const OpDef> gemm_ops();

}  // namespace heddle::ops
