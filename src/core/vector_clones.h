// SPDX-License-Identifier: Apache-2.0
// HEDDLE_VECTOR_CLONES before a plain loop lets the compiler build it for several instruction sets,
// one of which is picked when the program starts. For loops that are not worth intrinsics.
//
// Off under sanitizers, whose runtime is not up yet when the pick is made.
#pragma once

#include "core/sanitizers.h"

#if !defined(__x86_64__) || HEDDLE_SANITIZED
#define HEDDLE_VECTOR_CLONES
#elif defined(__clang__)
#define HEDDLE_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define HEDDLE_VECTOR_CLONES \
  __attribute__((optimize("O3"), target_clones("arch=skylake-avx512", "avx2", "default")))
#endif
