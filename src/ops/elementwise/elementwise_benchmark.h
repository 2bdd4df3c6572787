// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// Every kind, decode and prefill; gates of one column, too.
std::vector<OpBenchmark> elementwise_benchmarks(CpuContext& context);

}  // namespace heddle::ops
