// SPDX-License-Identifier: Apache-2.0
// OpBenchmark: one op at one shape, timed. Op families offer theirs as a list; `heddle bench ops`
// lists and runs them beside what the machine can do (roofline.h).
//
// Threading: on the thread that owns the context's pool, while nothing else uses it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/context.h"

namespace heddle::ops {

struct OpBenchmark {
  std::string name;   // "linear": that of the op
  std::string shape;  // "T 1, N 512, K 512, bfloat16"
  double bytes = 0;   // least bytes that must come from or go to memory
  double flops = 0;
  std::function<void()> run;  // once; rotates through memory where the op would find it cold.
                              // The first run takes what memory it needs, destruction gives it back
};

struct Measurement {
  double median_seconds = 0;
  double best_seconds = 0;
  double gb_per_s = 0;  // at the median time
  double gflops = 0;    // at the median time
};

// Runs it once to warm up, then at least nine times and for at least `min_seconds` (at most 100 000
// times).
Measurement measure(const OpBenchmark& benchmark, double min_seconds = 0.2);

struct BenchmarkFamily {
  std::string_view name;
  std::vector<OpBenchmark> (*make)(CpuContext& context);  // cheap: memory is taken when they run
};

// A new family is declared below and adds a line in op_benchmark.cpp; a test asks for a benchmark
// under the name of every op of the registry.
std::span<const BenchmarkFamily> all_benchmarks();

// The benchmarks whose own name or whose family's contains `filter`, family by family; those of all
// families where it is empty.
std::vector<OpBenchmark> benchmarks_matching(CpuContext& context, std::string_view filter);

// The families, each in its own *_bench.cpp. Those that stream weights keep 640 MiB of them from
// the first run on, while the list lives.
std::vector<OpBenchmark> adapter_benchmarks(CpuContext& context);
std::vector<OpBenchmark> attention_benchmarks(CpuContext& context);
std::vector<OpBenchmark> collective_benchmarks(CpuContext& context);
std::vector<OpBenchmark> elementwise_benchmarks(CpuContext& context);
std::vector<OpBenchmark> embedding_benchmarks(CpuContext& context);
std::vector<OpBenchmark> latent_projection_benchmarks(CpuContext& context);
std::vector<OpBenchmark> layout_benchmarks(CpuContext& context);
std::vector<OpBenchmark> linear_benchmarks(CpuContext& context);
std::vector<OpBenchmark> linear_attention_benchmarks(CpuContext& context);
std::vector<OpBenchmark> moe_benchmarks(CpuContext& context);
std::vector<OpBenchmark> norm_benchmarks(CpuContext& context);
std::vector<OpBenchmark> rope_benchmarks(CpuContext& context);
std::vector<OpBenchmark> segment_attention_benchmarks(CpuContext& context);
std::vector<OpBenchmark> selective_scan_benchmarks(CpuContext& context);

}  // namespace heddle::ops
