// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// Rows of a bfloat16 table of 151,936 ids.
std::vector<OpBenchmark> embedding_benchmarks(CpuContext& context);

}  // namespace heddle::ops
