// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_arena.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

namespace heddle::checkpoint {

namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

// What the kernel thinks can be had without swapping; no limit where it does not say.
int64_t available_memory_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  std::string unit;
  while (meminfo >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    std::getline(meminfo, unit);
  }
  return std::numeric_limits<int64_t>::max();
}

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0); }

}  // namespace

Result<WeightArena> WeightArena::create(int64_t bytes) {
  WeightArena arena;
  if (bytes <= 0) return arena;
  const int64_t available = available_memory_bytes();
  if (bytes > available - kHugePage) {
    return resource_exhausted(
        fmt::format("the weights need {:.2f} GiB, the machine has {:.2f} GiB of "
                    "free memory; use a smaller model or a 16-bit --dtype",
                    gib(bytes), gib(available)));
  }
  const auto mapping_bytes = static_cast<size_t>(bytes + kHugePage);
  void* const mapping = ::mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return resource_exhausted(
        fmt::format("cannot get {:.2f} GiB for the weights: {}", gib(bytes), std::strerror(errno)));
  }
  arena.mapping_ = mapping;
  arena.mapping_bytes_ = mapping_bytes;
  const auto start = reinterpret_cast<uintptr_t>(mapping);
  const auto page = static_cast<uintptr_t>(kHugePage);
  arena.data_ = static_cast<std::byte*>(mapping) + ((start + page - 1) / page * page - start);
  arena.num_bytes_ = bytes;
  // Advice only: kernels without transparent huge pages refuse it, and everything still works.
  (void)::madvise(arena.data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return arena;
}

WeightArena::~WeightArena() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

WeightArena::WeightArena(WeightArena&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)) {}

WeightArena& WeightArena::operator=(WeightArena&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  return *this;
}

}  // namespace heddle::checkpoint
