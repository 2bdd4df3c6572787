// SPDX-License-Identifier: Apache-2.0
// How fast one core multiplies when nothing waits for memory, measured by loops that live in
// registers. Kernels choose by it, benchmarks divide by it.
//
// Cost: below a millisecond on the first call of each; later calls return the first answer.
// Threading: any thread.
#pragma once

namespace heddle::ops {

// float32 fused multiply-adds in GFLOP/s, with the widest vectors the CPU has.
double peak_float_gflops();

// bf16 dot products accumulating in float32 (AVX512-BF16), in GFLOP/s; 0 on a CPU without them.
double peak_bf16_gflops();

}  // namespace heddle::ops
