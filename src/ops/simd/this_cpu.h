// SPDX-License-Identifier: Apache-2.0
// This CPU: the instruction set that kernels run on, and how fast one core multiplies when nothing
// waits for memory, measured by loops that live in registers. Kernels are chosen by the rates,
// benchmarks divide by them.
//
// Cost: below a millisecond on the first call of each rate; later calls return the first answer.
// Threading: any thread.
#pragma once

#include <string_view>

namespace heddle::ops {

std::string_view simd_target_name();  // "AVX3", "AVX2", ...

// float32 fused multiply-adds in GFLOP/s, with the widest vectors the CPU has.
double peak_float_gflops();

// bf16 dot products accumulating in float32 (AVX512-BF16), in GFLOP/s; 0 on a CPU without them.
double peak_bf16_gflops();

}  // namespace heddle::ops
