// SPDX-License-Identifier: Apache-2.0
#include "support/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include <malloc.h>

#include "core/compiler.h"

// A sanitizer brings allocation functions of its own.
#define HEDDLE_COUNTS_ALLOCATIONS !HEDDLE_SANITIZED

namespace {

std::atomic<int64_t> num_allocations{0};
std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

#if HEDDLE_COUNTS_ALLOCATIONS
void* allocate(std::size_t size, std::size_t alignment) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) std::abort();
  const auto bytes = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t live = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (peak < live && !peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  return memory;
}

void release(void* memory) {
  live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}
#endif

}  // namespace

#if HEDDLE_COUNTS_ALLOCATIONS

void* operator new(std::size_t size) { return allocate(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }

void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}

// std::stable_sort asks in this way.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}

void operator delete(void* memory) noexcept { release(memory); }

void operator delete(void* memory, std::size_t) noexcept { release(memory); }

void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }

void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

#endif

namespace heddle::testing {

bool AllocationCount::supported() { return HEDDLE_COUNTS_ALLOCATIONS; }

AllocationCount::AllocationCount() : start_(num_allocations.load()) {}

int64_t AllocationCount::count() const { return num_allocations.load() - start_; }

PeakMemory::PeakMemory() : start_(live_bytes.load()) { peak_bytes = start_; }

int64_t PeakMemory::bytes() const { return peak_bytes.load() - start_; }

}  // namespace heddle::testing
