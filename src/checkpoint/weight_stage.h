// SPDX-License-Identifier: Apache-2.0
// WeightStage: the way of weights to the memory of a device, on a stream of its own: converted ones
// through two slabs of pinned memory, of which one is written while the other is copied; drawn ones
// are computed by the device. Each thread that loads has a stage, so that none waits for another's
// copies; the slabs of all are the host memory that loading takes: 256 MiB with eight threads.
//
// Threading: confined. Cost: waits only where copies are slower than conversion.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "checkpoint/drawn_codes.h"
#include "checkpoint/drawn_weight.h"
#include "device/device.h"

namespace heddle::checkpoint {

class WeightStage {
 public:
  static constexpr int64_t kSlabBytes = int64_t{16} << 20;

  // For weights in `arena`, memory of the device, which must be current on this thread. One
  // reservation takes at most `largest_piece` bytes.
  static Result<WeightStage> create(device::Device& device, std::byte* arena,
                                    int64_t largest_piece);

  // Host memory for a piece. Valid until the next call. The first calls allocate the slabs.
  Result<std::byte*> reserve(int64_t num_bytes);

  // Enqueues the copy of `num_bytes` of the piece reserved last, from byte `offset` of it on, to
  // byte `target_byte` of the arena.
  Status send(int64_t target_byte, int64_t offset, int64_t num_bytes);

  // Whether the device computes drawn weights.
  [[nodiscard]] bool can_draw() const { return device_->kind() == device::DeviceKind::kCuda; }

  // Enqueues the elements of `job`, computed by the device.
  Status draw(const DrawnWeight& weight, const CopyJob& job);

  // Enqueues rows of codes, computed by the device; `target` lies in the arena.
  Status draw_rows(const DrawnRows& rows, const quant::PackedRows& target);

  // Waits for all that was enqueued.
  Status finish() { return stream_->synchronize(); }

 private:
  struct Slab {
    device::Buffer memory;
    std::unique_ptr<device::Event> copied;
  };

  device::Device* device_ = nullptr;
  std::byte* arena_ = nullptr;
  int64_t slab_bytes_ = 0;
  std::unique_ptr<device::Stream> stream_;
  std::array<Slab, 2> slabs_;
  size_t current_ = 0;
  int64_t used_ = 0;   // bytes used of the current slab
  int64_t piece_ = 0;  // bytes reserved last, at the end of them
};

}  // namespace heddle::checkpoint
