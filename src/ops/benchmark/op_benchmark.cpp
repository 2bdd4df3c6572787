// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/op_benchmark.h"

#include <algorithm>
#include <chrono>

namespace heddle::ops {

Measurement measure(const OpBenchmark& benchmark, double min_seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kMinRuns = 9;
  constexpr size_t kMaxRuns = 100'000;
  benchmark.run();
  std::vector<double> seconds;
  const auto start = Clock::now();
  for (;;) {
    const auto before = Clock::now();
    benchmark.run();
    const auto after = Clock::now();
    seconds.push_back(std::chrono::duration<double>(after - before).count());
    const double total = std::chrono::duration<double>(after - start).count();
    if (seconds.size() >= kMaxRuns) break;
    if (seconds.size() >= kMinRuns && total >= min_seconds) break;
  }
  std::sort(seconds.begin(), seconds.end());
  Measurement result{.median_seconds = std::max(seconds[seconds.size() / 2], 1e-9),
                     .best_seconds = std::max(seconds.front(), 1e-9)};
  result.gb_per_s = benchmark.bytes / result.median_seconds * 1e-9;
  result.gflops = benchmark.flops / result.median_seconds * 1e-9;
  return result;
}

double Roofline::floor_seconds(const OpBenchmark& benchmark) const {
  const double from_memory = benchmark.bytes / std::max(read_gb_per_s * 1e9, 1.0);
  const double from_arithmetic =
      benchmark.flops / std::max(std::max(float_gflops, bf16_gflops) * 1e9, 1.0);
  return std::max(from_memory, from_arithmetic);
}

}  // namespace heddle::ops
