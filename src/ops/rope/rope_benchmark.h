// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// Query heads: with their norm and a quarter of the channels rotated, without it and all of them,
// and the last third in pairs of neighbours.
std::vector<OpBenchmark> rope_benchmarks(CpuContext& context);

}  // namespace heddle::ops
