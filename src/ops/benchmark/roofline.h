// SPDX-License-Identifier: Apache-2.0
// Roofline: what the machine can do at best, which benchmarks of ops and of steps are divided by.
//
// Threading: on the thread that owns the context's pool, while nothing else uses it.
#pragma once

#include "ops/benchmark/benchmark_data.h"
#include "ops/benchmark/op_benchmark.h"
#include "ops/context.h"

namespace heddle::ops {

// Measures current memory bandwidth with the context's threads. On a shared machine it varies by
// the second: measure it next to the compared work.
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

// The rates that the machine reaches with the context's threads.
struct Roofline {
  int num_threads = 1;
  double read_gb_per_s = 0;  // the best of some ReadProbes
  double float_gflops = 0;   // fp32 multiply-adds in registers
  double bf16_gflops = 0;    // bf16 dot products in registers; 0 where the CPU has none

  // The time the larger of the two bounds allows, with the faster of the two kinds of arithmetic.
  [[nodiscard]] double floor_seconds(const OpBenchmark& benchmark) const;
};

// Cost: about a second, and 512 MiB that are freed.
Roofline measure_roofline(CpuContext& context);

}  // namespace heddle::ops
