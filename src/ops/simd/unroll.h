// SPDX-License-Identifier: Apache-2.0
// HEDDLE_UNROLL before a loop over a compile-time count whose body works on an array of vectors:
// fully unrolled, the array lives in registers.
#pragma once

#if defined(__clang__)
#define HEDDLE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HEDDLE_UNROLL _Pragma("GCC unroll 32")
#endif
