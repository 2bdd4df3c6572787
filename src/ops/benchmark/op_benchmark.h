// SPDX-License-Identifier: Apache-2.0
// OpBenchmark: one op at one shape, timed on the CPU. Each op family has a list of them; `heddle
// bench ops` runs them and prints their rates next to the machine's limits (roofline.h).
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
  std::string name;   // name of the op, as in "linear"
  std::string shape;  // shape for the report, as in "T 1, N 512, K 512, bfloat16"
  double bytes = 0;   // least bytes that must be read from or written to memory
  double flops = 0;
  // Runs the op once, with a different piece of memory each time if the op must not find its data
  // in a cache. The first run allocates memory, which is freed with `run`.
  std::function<void()> run;
};

struct Measurement {
  double median_seconds = 0;
  double best_seconds = 0;
  double gb_per_s = 0;  // bandwidth at the median time
  double gflops = 0;    // arithmetic rate at the median time
};

// Runs the benchmark once to warm up, then at least nine times and for at least `min_seconds` (at
// most 100 000 times).
Measurement measure(const OpBenchmark& benchmark, double min_seconds = 0.2);

struct BenchmarkFamily {
  std::string_view name;
  // cheap: benchmarks allocate memory only when they run
  std::vector<OpBenchmark> (*make)(CpuContext& context);
};

// All families of op benchmarks. A new family is declared below and gets a line in
// op_benchmark.cpp; a test requires a benchmark for every op of the registry, under the op's name.
std::span<const BenchmarkFamily> all_benchmarks();

// The benchmarks whose name or family name contains `filter`, family by family; all benchmarks if
// `filter` is empty.
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
