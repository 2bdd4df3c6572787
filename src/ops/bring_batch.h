// SPDX-License-Identifier: Apache-2.0
// bring_batch: uploads a step's batch at the head of the step on a GPU. One launch copies the
// arrays of the batch and the changed page table entries from pinned host memory, then writes drawn
// tokens into the rows that wait for them (drafting/feed_drawn.h). Its blocks start while the
// previous kernel still runs and read the host's memory meanwhile.
//
// The alternatives cost more time in the CUDA stream: a memcpy starts only when all earlier work
// has ended, a separate launch for the drawn tokens starts after the memcpy, and an event that
// tells the host when it may reuse the pinned memory takes time of its own.
//
// Cost: reads the bytes of the batch over the bus, some 20 us a MB at the bus rate, concurrently
// with the previous kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/context.h"
#include "ops/device_page_table.h"
#include "ops/drafting/feed_drawn.h"

namespace heddle::ops {

struct BringBatchArgs {
  const std::byte* from = nullptr;  // pinned host memory, 16-byte aligned
  std::byte* to = nullptr;          // destination of the copy in device memory, 16-byte aligned
  int64_t num_bytes = 0;            // size of the copy; a multiple of 16
  // page table entries to write: pinned host memory, 16-byte aligned
  const PageWrite* changes = nullptr;
  int64_t num_changes = 0;         // number of page table entries to write; even
  int32_t* page_tables = nullptr;  // destination of the changes, in device memory
  // Host memory. The kernel sets it to `number` once it has read `from` and `changes`.
  uint32_t* read_number = nullptr;
  uint32_t number = 0;  // number of this batch, written to *read_number
  // counter in device memory: zero before the launch and after it
  uint32_t* num_blocks_done = nullptr;
  FeedDrawnArgs feed;  // drawn tokens to write into rows after the copy; may be empty
};

// Enqueues the upload; launches nothing if there are no bytes, changes or fed rows. Error:
// kDeviceLost.
Status bring_batch_cuda(CudaContext& context, const BringBatchArgs& args);

}  // namespace heddle::ops
