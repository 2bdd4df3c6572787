// SPDX-License-Identifier: Apache-2.0
// HEDDLE_SANITIZED: 1 in a build for the address, thread or memory sanitizer, in g++'s and in
// clang's words; else 0.
#pragma once

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
