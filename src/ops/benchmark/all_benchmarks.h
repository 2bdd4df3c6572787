// SPDX-License-Identifier: Apache-2.0
// Every family of op benchmarks, for `heddle bench ops`. A new op adds a line in
// all_benchmarks.cpp.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

struct BenchmarkFamily {
  std::string_view name;
  std::vector<OpBenchmark> (*make)(CpuContext& context);
};

std::span<const BenchmarkFamily> all_benchmarks();

}  // namespace heddle::ops
