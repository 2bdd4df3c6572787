// SPDX-License-Identifier: Apache-2.0
// WeightStage: uploads weights to a device on its own device stream. Converted weights go through
// two slabs of pinned memory: one is filled while the other is copied. Drawn weights are computed
// by the device. Each loading thread has a stage, so that no thread waits for another's copies. The
// slabs of all stages are the host memory that loading needs: 256 MiB with eight threads.
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

  // Creates a stage for weights in `arena`, memory of `device`, which must be current on this
  // thread. One reservation takes at most `largest_piece` bytes.
  static Result<WeightStage> create(device::Device& device, std::byte* arena,
                                    int64_t largest_piece);

  // Reserves host memory for a piece, valid until the next call. The first calls allocate the
  // slabs.
  Result<std::byte*> reserve(int64_t num_bytes);

  // Enqueues the copy of `num_bytes` bytes of the last reserved piece, from byte `offset` of the
  // piece to byte `target_byte` of the arena.
  Status send(int64_t target_byte, int64_t offset, int64_t num_bytes);

  // Whether the device can compute drawn weights.
  [[nodiscard]] bool can_draw() const { return device_->kind() == device::DeviceKind::kCuda; }

  // Enqueues the device's computation of the elements of `job`.
  Status draw(const DrawnWeight& weight, const CopyJob& job);

  // Enqueues the device's computation of rows of codes; `target` is in the arena.
  Status draw_rows(const DrawnRows& rows, const quant::PackedRows& target);

  // Waits until all enqueued work has finished.
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
  int64_t used_ = 0;   // bytes of the current slab that are reserved
  int64_t piece_ = 0;  // size in bytes of the last reserved piece, which ends at used_
};

}  // namespace heddle::checkpoint
