// SPDX-License-Identifier: Apache-2.0
// The instruction set that kernels use on this CPU, and how fast one core multiplies when it does
// not wait for memory, measured by loops over registers. Kernels are chosen by these rates, and
// benchmarks report their results relative to them.
//
// Cost: below a millisecond on the first call of each rate; later calls return the first result.
// Threading: any thread.
#pragma once

#include <string_view>

namespace heddle::ops {

std::string_view simd_target_name();  // name of the instruction set: "AVX3", "AVX2", ...

// Rate of float32 fused multiply-adds in GFLOP/s, with the widest vectors that the CPU has.
double peak_float_gflops();

// Rate of bf16 dot products with float32 sums (AVX512-BF16), in GFLOP/s; 0 on a CPU without them.
double peak_bf16_gflops();

}  // namespace heddle::ops
