// SPDX-License-Identifier: Apache-2.0
// bring_batch: the head of a step on a GPU. The arrays of its batch and what changes in page tables
// come from pinned memory of the host, and rows that feed on what only the device knows get it
// (drafting/feed_drawn.h): one launch, whose blocks start while the kernel before still runs, and
// read the host's memory meanwhile.
//
// A copy of the stream would begin when everything before it has ended, a launch that feeds when
// that has, and an event that says when the host may write again takes its time in the stream as
// well.
//
// Bytes: those of the batch over the bus, some 20 us a MB by its rate, behind the kernel before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/context.h"
#include "ops/device_page_table.h"
#include "ops/drafting/feed_drawn.h"

namespace heddle::ops {

struct BringBatchArgs {
  const std::byte* from = nullptr;     // pinned memory of the host, on 16 bytes
  std::byte* to = nullptr;             // device memory, 16-byte aligned
  int64_t num_bytes = 0;               // a multiple of 16
  const PageWrite* changes = nullptr;  // pinned host memory, 16-byte aligned
  int64_t num_changes = 0;             // even
  int32_t* page_tables = nullptr;      // device memory
  // Host memory, set to `number` once `from` and `changes` were read.
  uint32_t* read_number = nullptr;
  uint32_t number = 0;                  // number of this batch
  uint32_t* num_blocks_done = nullptr;  // memory of the device: zero before the launch and after it
  FeedDrawnArgs feed;                   // done after the copy; may have no rows
};

// Nothing is launched where there is nothing to do. Error: kDeviceLost.
Status bring_batch_cuda(CudaContext& context, const BringBatchArgs& args);

}  // namespace heddle::ops
