// SPDX-License-Identifier: Apache-2.0
// linear at the shapes of small hybrid models: projections and output heads, one token to a
// prefill; linear_bias at those of models that have biases.
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// Holds 640 MiB of weights from the first run on, while the list lives.
std::vector<OpBenchmark> linear_benchmarks(CpuContext& context);

}  // namespace heddle::ops
