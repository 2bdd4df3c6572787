// SPDX-License-Identifier: Apache-2.0
// The values of a large body are many and small, and the allocator keeps their memory when they are
// freed. Measured after two bodies of 14 MB with 300,000 messages each: the server kept 455 MB, and
// 69 MB with this.
//
// Threading: thread-safe; other threads wait for a moment where they allocate.
#pragma once

#include <cstddef>

namespace heddle::server {

// Bodies from here on are worth it; the memory of smaller ones is used again.
inline constexpr size_t kLargeBodyBytes = 1 << 20;

// Gives freed memory back to the system, where the C library can. Cost: milliseconds.
void return_memory();

}  // namespace heddle::server
