// SPDX-License-Identifier: Apache-2.0
// Macros for features that g++, clang and nvcc spell differently.
#pragma once

// HEDDLE_HOST_DEVICE marks an inline function that kernels also call.
#ifdef __CUDACC__
#define HEDDLE_HOST_DEVICE __host__ __device__
#else
#define HEDDLE_HOST_DEVICE
#endif

// HEDDLE_SANITIZED is 1 in a build with the address, thread or memory sanitizer, else 0.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEDDLE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define HEDDLE_SANITIZED 1
#endif
#endif

#ifndef HEDDLE_SANITIZED
#define HEDDLE_SANITIZED 0
#endif

// HEDDLE_VECTOR_CLONES before a function lets the compiler build it for several instruction sets,
// one of which is chosen when the program starts. For plain loops that are not worth intrinsics.
// Off under sanitizers, whose runtime is not initialised when the choice is made.
#if !defined(__x86_64__) || HEDDLE_SANITIZED
#define HEDDLE_VECTOR_CLONES
#elif defined(__clang__)
#define HEDDLE_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define HEDDLE_VECTOR_CLONES \
  __attribute__((optimize("O3"), target_clones("arch=skylake-avx512", "avx2", "default")))
#endif
