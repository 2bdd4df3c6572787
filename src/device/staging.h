// SPDX-License-Identifier: Apache-2.0
// UploadRing and ReadbackRing: pinned memory through which small arrays pass between the host and a
// device while steps overlap. One side writes a block while the other still reads those before it,
// so the blocks are used in turn.
//
// Threading: confined to the thread that drives the stream. Cost: allocates only where a transfer
// is larger than any before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"

namespace heddle::device {

// From blocks of the host to one block of the device's memory:
//
//   begin() -> the caller writes host() -> upload() -> work on the stream reads device()
class UploadRing {
 public:
  enum class Waits : uint8_t {
    kNever,      // the caller sees to it that at most num_blocks uploads are on their way
    kForCopies,  // begin() waits until the block's last copy is done
  };

  UploadRing() = default;

  UploadRing(Device& device, int64_t num_blocks, Waits waits)
      : device_(&device), blocks_(static_cast<size_t>(num_blocks)), waits_(waits) {}

  // Starts the next block, with room for `num_bytes`. Growing it waits for the stream, which may
  // still read an earlier upload, and loses that upload. Errors: kResourceExhausted, kDeviceLost.
  Status begin(Stream& stream, int64_t num_bytes);

  // host(): the block of the last begin(), to be written. device(): the last upload(); bytes beyond
  // it are undefined.
  [[nodiscard]] std::byte* host() const { return blocks_[current_].pinned.data(); }

  [[nodiscard]] std::byte* device() const { return memory_.data(); }

  // Enqueues the copy of the first bytes of host().
  Status upload(Stream& stream, int64_t num_bytes);

 private:
  struct Block {
    Buffer pinned;
    std::unique_ptr<Event> copied;  // kForCopies
  };

  Status grow(Stream& stream, int64_t num_bytes);

  Device* device_ = nullptr;
  Buffer memory_;
  std::vector<Block> blocks_;
  Waits waits_ = Waits::kNever;
  size_t current_ = 0;
};

// Blocks of the host that a device writes, by copies or by kernels, and the host reads once the
// stream has come so far. The caller reads a block before as many others have been begun.
class ReadbackRing {
 public:
  ReadbackRing() = default;

  ReadbackRing(Device& device, int64_t num_blocks)
      : device_(&device), blocks_(static_cast<size_t>(num_blocks)) {}

  // Starts the next block, with room for `num_bytes`; its contents are lost. Error:
  // kResourceExhausted.
  Result<std::byte*> begin(int64_t num_bytes);

  // Index of the block of the last begin(), and of the one before.
  [[nodiscard]] size_t current() const { return current_; }

  [[nodiscard]] size_t previous() const { return (current_ + blocks_.size() - 1) % blocks_.size(); }

  [[nodiscard]] std::byte* block(size_t index) const { return blocks_[index].data(); }

 private:
  Device* device_ = nullptr;
  std::vector<Buffer> blocks_;
  size_t current_ = 0;
};

}  // namespace heddle::device
