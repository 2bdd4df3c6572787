// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// The delta rule at two widths and with a decay for each channel, prefill in both forms and decode;
// its convolution and norms.
std::vector<OpBenchmark> linear_attention_benchmarks(CpuContext& context);

}  // namespace heddle::ops
