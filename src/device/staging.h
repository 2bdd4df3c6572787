// SPDX-License-Identifier: Apache-2.0
// UploadRing and ReadbackRing: pinned memory for copies of small arrays between the host and a
// device while steps overlap. One side writes a block while the other still reads earlier ones, so
// the blocks are used in turn.
//
// Threading: confined to the thread that uses the stream. Cost: allocates only for a transfer that
// is larger than any before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"

namespace heddle::device {

// Copies from blocks of host memory to one block of device memory:
//
//   begin() -> the caller writes host() -> upload() -> work on the stream reads device()
class UploadRing {
 public:
  enum class Waits : uint8_t {
    kNever,      // the caller ensures that at most num_blocks uploads are enqueued and not done
    kForCopies,  // begin() waits until the last copy from the block is done
  };

  UploadRing() = default;

  UploadRing(Device& device, int64_t num_blocks, Waits waits)
      : device_(&device), blocks_(static_cast<size_t>(num_blocks)), waits_(waits) {}

  // Starts the next block, with room for `num_bytes`. Growing it waits for the stream, which may
  // still read an earlier upload, and discards that upload. Errors: kResourceExhausted,
  // kDeviceLost.
  Status begin(Stream& stream, int64_t num_bytes);

  // host(): the block of the last begin(), for the caller to write. device(): the data of the last
  // upload(); bytes after it are undefined.
  [[nodiscard]] std::byte* host() const { return blocks_[current_].pinned.data(); }

  [[nodiscard]] std::byte* device() const { return memory_.data(); }

  // Enqueues the copy of the first `num_bytes` bytes of host().
  Status upload(Stream& stream, int64_t num_bytes);

 private:
  struct Block {
    Buffer pinned;
    std::unique_ptr<Event> copied;  // for kForCopies: recorded after the copy
  };

  Status grow(Stream& stream, int64_t num_bytes);

  Device* device_ = nullptr;
  Buffer memory_;
  std::vector<Block> blocks_;
  Waits waits_ = Waits::kNever;
  size_t current_ = 0;
};

// Blocks of host memory that a device writes, by copies or kernels. The host reads a block once the
// stream has executed that work, and before begin() reaches the block again.
class ReadbackRing {
 public:
  ReadbackRing() = default;

  ReadbackRing(Device& device, int64_t num_blocks)
      : device_(&device), blocks_(static_cast<size_t>(num_blocks)) {}

  // Starts the next block, with room for `num_bytes`; its old contents are lost. Error:
  // kResourceExhausted.
  Result<std::byte*> begin(int64_t num_bytes);

  // Index of the block of the last begin(), and of the begin() before that.
  [[nodiscard]] size_t current() const { return current_; }

  [[nodiscard]] size_t previous() const { return (current_ + blocks_.size() - 1) % blocks_.size(); }

  [[nodiscard]] std::byte* block(size_t index) const { return blocks_[index].data(); }

 private:
  Device* device_ = nullptr;
  std::vector<Buffer> blocks_;
  size_t current_ = 0;
};

}  // namespace heddle::device
