// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

// Both products around latent attention, decode and prefill. Holds 640 MiB of weights from the
// first run on, while the list lives.
std::vector<OpBenchmark> latent_projection_benchmarks(CpuContext& context);

}  // namespace heddle::ops
