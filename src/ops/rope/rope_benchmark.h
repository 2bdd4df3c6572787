// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// Query heads with their norm, a quarter of the channels rotated.
std::vector<OpBenchmark> rope_benchmarks(CpuContext& context);

}  // namespace heddle::ops
