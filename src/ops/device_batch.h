// SPDX-License-Identifier: Apache-2.0
// DeviceBatchUpload: copies the arrays of a ForwardContext into memory of the device, as one block
// with one copy, and points ForwardContext::batch there.
//
// Page tables are copied as wide as the longest sequence of the batch needs, rounded up to a power
// of two of at least 16. Where arrays lie depends on the numbers of rows, sequences and wanted
// logits and on that width: batches that agree in these have the same addresses.
//
// Threading: confined. Cost: O(rows + sequences * width) host work and one copy of that many
// integers; allocates nothing after create().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "ops/forward_context.h"

namespace heddle::ops {

struct DeviceBatchSizes {
  int64_t max_rows = 0;
  int64_t max_sequences = 0;
  int64_t max_pages_per_sequence = 0;
  bool has_window_pages = false;
  int64_t max_snapshots = 0;
  int64_t max_logit_rows = 0;
  int64_t max_in_flight = 2;  // uploads of which the stream has not done the copy
};

class DeviceBatchUpload {
 public:
  // Error: kResourceExhausted, naming the size.
  static Result<DeviceBatchUpload> create(device::Device& device, const DeviceBatchSizes& sizes);

  // Pages that each sequence of the batch has room for on the device.
  [[nodiscard]] static int64_t width_of(const ForwardContext& forward);

  // Enqueues the copy of `ids` and `positions`, one number for each row, and of the spans of
  // `forward`; sets forward.batch. Waits where max_in_flight are, whose blocks on the host it
  // writes in turn. Error: kInvalidArgument for a batch beyond the sizes.
  Status upload(device::Stream& stream, std::span<const int32_t> ids,
                std::span<const int32_t> positions, ForwardContext& forward);

  // Of the last upload(), in memory of the device: [rows].
  [[nodiscard]] const int32_t* ids() const { return ids_; }

  [[nodiscard]] const int32_t* positions() const { return positions_; }

  // Of the last upload(), to be changed by launches before those that read them.
  struct Rows {
    int32_t* ids = nullptr;        // [rows]
    int32_t* positions = nullptr;  // [rows]
    // DeviceBatch's:
    int32_t* row_sequences = nullptr;
    int32_t* state_slots = nullptr;
    int32_t* context_lens = nullptr;
    int32_t* kv_lens = nullptr;
    int32_t* logit_rows = nullptr;
  };

  [[nodiscard]] const Rows& rows() const { return rows_; }

 private:
  DeviceBatchSizes sizes_;

  struct HostBlock {
    device::Buffer pinned;
    std::unique_ptr<device::Event> copied;
  };

  device::Buffer device_;
  std::vector<HostBlock> host_blocks_;  // used in turn
  size_t current_ = 0;
  const int32_t* ids_ = nullptr;
  const int32_t* positions_ = nullptr;
  Rows rows_;
};

}  // namespace heddle::ops
