// SPDX-License-Identifier: Apache-2.0
// Every family of op benchmarks, for `heddle bench ops`. A new family adds a line in
// all_benchmarks.cpp; a test asks for a benchmark under the name of every op of the registry.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ops/benchmark/op_benchmark.h"

namespace heddle::ops {

struct BenchmarkFamily {
  std::string_view name;
  std::vector<OpBenchmark> (*make)(CpuContext& context);  // cheap: memory is taken when they run
};

std::span<const BenchmarkFamily> all_benchmarks();

// The benchmarks whose own name or whose family's contains `filter`, family by family; those of all
// families where it is empty.
std::vector<OpBenchmark> benchmarks_matching(CpuContext& context, std::string_view filter);

}  // namespace heddle::ops
