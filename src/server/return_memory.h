// SPDX-License-Identifier: Apache-2.0
// What a large body took, as values of a few bytes each, stays with the allocator when they are
// freed: a server that read one would look, and be, that much larger ever after.
//
// Threading: thread-safe; other threads wait for a moment where they allocate.
#pragma once

#include <cstddef>

namespace heddle::server {

// Bodies from here on are worth it; what smaller ones leave is used again.
inline constexpr size_t kLargeBodyBytes = 1 << 20;

// Gives freed memory back to the system, where the C library can. Cost: milliseconds.
void return_memory();

}  // namespace heddle::server
