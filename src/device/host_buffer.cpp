// SPDX-License-Identifier: Apache-2.0
#include "device/host_buffer.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace heddle::device {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Result<HostBuffer> HostBuffer::allocate(int64_t num_bytes) {
  if (num_bytes < 0) return invalid_argument(fmt::format("a buffer of {} bytes", num_bytes));
  HostBuffer buffer;
  if (num_bytes == 0) return buffer;
  const auto wanted = static_cast<size_t>(num_bytes);
  const bool large = wanted >= kHugePage;
  const size_t mapping_size = wanted + (large ? kHugePage : 0);
  void* mapping = mmap(nullptr, mapping_size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return resource_exhausted(fmt::format("no memory for a buffer of {:.1f} MiB: {}",
                                          static_cast<double>(wanted) / 1048576.0,
                                          std::strerror(errno)));
  }
  auto start = reinterpret_cast<uintptr_t>(mapping);
  if (large) {
    start = (start + kHugePage - 1) / kHugePage * kHugePage;
    (void)madvise(reinterpret_cast<void*>(start), wanted,
                  MADV_HUGEPAGE);  // only a hint; the system may refuse
  }
  buffer.data_ = reinterpret_cast<std::byte*>(start);
  buffer.size_ = num_bytes;
  buffer.mapping_ = mapping;
  buffer.mapping_size_ = mapping_size;
  return buffer;
}

HostBuffer::~HostBuffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_size_(std::exchange(other.mapping_size_, 0)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_size_, other.mapping_size_);
  return *this;
}

int64_t host_page_bytes() {
  static const auto kBytes = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  return kBytes;
}

void release_host_memory(void* at, int64_t num_bytes) {
  const auto page = static_cast<uintptr_t>(host_page_bytes());
  const auto address = reinterpret_cast<uintptr_t>(at);
  const uintptr_t first = (address + page - 1) / page * page;
  const uintptr_t end = (address + static_cast<uintptr_t>(num_bytes)) / page * page;
  if (first >= end) return;
  (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace heddle::device
