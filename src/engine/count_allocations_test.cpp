// SPDX-License-Identifier: Apache-2.0
// Replaces operator new for this test program to count. In a file of its own: where the compiler
// sees both sides it warns of malloc under new. Sanitizers bring their own operator new; there it
// counts 0.
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {
thread_local int64_t num_allocations = 0;
}  // namespace

namespace heddle::engine {

int64_t num_allocations_of_this_thread() { return num_allocations; }

}  // namespace heddle::engine

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void* operator new(std::size_t size) {
  ++num_allocations;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }

void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif
