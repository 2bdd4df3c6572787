// SPDX-License-Identifier: Apache-2.0
// OpBenchmark: one op at one shape, timed against what the machine can do. Op families offer theirs
// as std::vector<OpBenchmark> <op>_benchmarks(CpuContext&); `heddle bench ops` lists and runs them.
//
// Threading: on the thread that owns the context's pool, while nothing else uses it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/benchmark/cold_memory.h"
#include "ops/context.h"

namespace heddle::ops {

struct OpBenchmark {
  std::string name;   // "linear": that of the op
  std::string shape;  // "T 1, N 512, K 512, bfloat16"
  double bytes = 0;   // that must come from or go to memory, at least
  double flops = 0;
  std::function<void()> run;  // once; rotates through memory where the op would find it cold.
                              // The first run takes what memory it needs, destruction gives it back
};

struct Measurement {
  double median_seconds = 0;
  double best_seconds = 0;
  double gb_per_s = 0;  // of the median
  double gflops = 0;    // of the median
};

// Runs it once to warm up, then at least nine times and for at least `min_seconds` (at most 100 000
// times).
Measurement measure(const OpBenchmark& benchmark, double min_seconds = 0.2);

// How fast memory is read at this moment, with the context's threads. On a machine that is shared
// this changes from second to second: measure it beside what is compared with it.
class ReadProbe {
 public:
  explicit ReadProbe(CpuContext& context) : context_(context), memory_(kBytes) {}

  // Reads all of it once. Cost: 512 MiB, some 15 ms; the first time they are filled before.
  [[nodiscard]] double gb_per_s();

 private:
  static constexpr int64_t kBytes = int64_t{512} << 20;

  CpuContext& context_;
  ColdMemory memory_;
};

// What the machine can do with the context's threads.
struct Roofline {
  int num_threads = 1;
  double read_gb_per_s = 0;  // the best of some ReadProbes
  double float_gflops = 0;   // fp32 multiply-adds in registers
  double bf16_gflops = 0;    // bf16 dot products in registers; 0 where the CPU has none

  // The time the larger of the two bounds allows, with the faster of the two kinds of arithmetic.
  [[nodiscard]] double floor_seconds(const OpBenchmark& benchmark) const;
};

// Cost: about a second and 512 MiB, given back.
Roofline measure_roofline(CpuContext& context);

}  // namespace heddle::ops
