// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// Causal prefill from nothing, and decode at a context of 4096, with 4 and 8 query heads of 128;
// the same over latent rows and with sinks, at the widths of models that have them.
std::vector<OpBenchmark> attention_benchmarks(CpuContext& context);

}  // namespace heddle::ops
