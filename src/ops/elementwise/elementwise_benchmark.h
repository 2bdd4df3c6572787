// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// The cheapest kind (add) and the dearest (SiLU product), decode and prefill.
std::vector<OpBenchmark> elementwise_benchmarks(CpuContext& context);

}  // namespace heddle::ops
