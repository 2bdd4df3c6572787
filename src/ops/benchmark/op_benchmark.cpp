// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/op_benchmark.h"

#include <algorithm>
#include <chrono>
#include <utility>

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

namespace {

constexpr BenchmarkFamily kFamilies[] = {
    {"adapter", adapter_benchmarks},
    {"attention", attention_benchmarks},
    {"collective", collective_benchmarks},
    {"elementwise", elementwise_benchmarks},
    {"embedding", embedding_benchmarks},
    {"latent_projection", latent_projection_benchmarks},
    {"layout", layout_benchmarks},
    {"linear", linear_benchmarks},
    {"delta_rule", linear_attention_benchmarks},
    {"moe", moe_benchmarks},
    {"norm", norm_benchmarks},
    {"rope", rope_benchmarks},
    {"segment_attention", segment_attention_benchmarks},
    {"selective_scan", selective_scan_benchmarks},
};

}  // namespace

std::span<const BenchmarkFamily> all_benchmarks() { return kFamilies; }

std::vector<OpBenchmark> benchmarks_matching(CpuContext& context, std::string_view filter) {
  std::vector<OpBenchmark> matching;
  for (const BenchmarkFamily& family : kFamilies) {
    const bool whole_family = family.name.find(filter) != std::string_view::npos;
    for (OpBenchmark& benchmark : family.make(context)) {
      if (!whole_family && benchmark.name.find(filter) == std::string::npos) continue;
      matching.push_back(std::move(benchmark));
    }
  }
  return matching;
}

}  // namespace heddle::ops
