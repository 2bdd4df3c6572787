// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// Shapes of the layer norms of a small and a large model, with and without residual, decode and
// prefill.
std::vector<OpBenchmark> norm_benchmarks(CpuContext& context);

}  // namespace heddle::ops
