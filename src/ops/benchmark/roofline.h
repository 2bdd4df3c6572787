// SPDX-License-Identifier: Apache-2.0
// Roofline: the best rates of this machine, to which benchmarks of ops and of steps are compared.
//
// Threading: on the thread that owns the context's pool, while nothing else uses it.
#pragma once

#include "ops/benchmark/benchmark_data.h"
#include "ops/benchmark/op_benchmark.h"
#include "ops/context.h"

namespace heddle::ops {

// Measures the current memory bandwidth with the context's threads. On a shared machine it changes
// from second to second: measure it right before or after the work that it is compared to.
class ReadProbe {
 public:
  explicit ReadProbe(CpuContext& context) : context_(context), memory_(kBytes) {}

  // Reads the whole block once and returns the rate. Cost: 512 MiB, some 15 ms; the first call
  // fills the block first.
  [[nodiscard]] double gb_per_s();

 private:
  static constexpr int64_t kBytes = int64_t{512} << 20;

  CpuContext& context_;
  ColdMemory memory_;
};

// The rates that the machine reaches with all threads of the context.
struct Roofline {
  int num_threads = 1;
  double read_gb_per_s = 0;  // memory bandwidth: the best of several ReadProbes
  double float_gflops = 0;   // fp32 multiply-adds on numbers in registers
  double bf16_gflops = 0;    // bf16 dot products on numbers in registers; 0 if the CPU has none

  // The least time that the benchmark can take: the larger of the times for its bytes and for its
  // flops, with the faster of the two kinds of arithmetic.
  [[nodiscard]] double floor_seconds(const OpBenchmark& benchmark) const;
};

// Cost: about a second, and 512 MiB that are freed again.
Roofline measure_roofline(CpuContext& context);

}  // namespace heddle::ops
