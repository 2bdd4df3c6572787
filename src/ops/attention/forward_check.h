// SPDX-License-Identifier: Apache-2.0
// What every op that reads the batch asks of it before touching memory through it.
#pragma once

#include "core/tensor.h"
#include "ops/forward_context.h"

namespace heddle::ops {

// The rows of all sequences are exactly the op's T rows, end to end, and no sequence is empty.
// Error: kInvalidArgument starting with the op's name. Cost: O(B).
Status check_batch_rows(const char* op, const ForwardContext* forward, int64_t T);

// Every sequence has a slot below `num_slots`, every snapshot one below `num_snapshot_slots`, and
// it lies within its sequence's rows.
Status check_batch_states(const char* op, const ForwardContext& forward, int64_t num_slots,
                          int64_t num_snapshot_slots);

// Every sequence's page table reaches its last row; pages lie below `num_pages`.
Status check_batch_pages(const char* op, const ForwardContext& forward, int64_t num_pages,
                         int64_t page_size);

}  // namespace heddle::ops
