// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// The copies that are left of latent attention's columns and of the rows that get logits.
std::vector<OpBenchmark> layout_benchmarks(CpuContext& context);

}  // namespace heddle::ops
