// SPDX-License-Identifier: Apache-2.0
// grouped_linear, moe_route and the routed_moe ops at the shapes of small hybrid models.
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// Holds 640 MiB of weights from the first run on, while the list lives.
std::vector<OpBenchmark> moe_benchmarks(CpuContext& context);

}  // namespace heddle::ops
