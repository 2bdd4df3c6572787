// SPDX-License-Identifier: Apache-2.0
// Uploads a step's batch: to = from; page_tables[index] = page for each change in a list; then
// tokens drawn by the previous step are written to the rows that need them (drafting/feed_drawn.h).
// A thread copies 16 bytes, or two changes of page tables, which it reads before the previous
// kernel has ended; the threads of the block that finishes last feed a row each. Warps do not
// cooperate. Bytes: those of the batch, over the bus. The only kernel for this: one launch at the
// head of each step on a GPU.
#include <algorithm>

#include "ops/bring_batch.h"
#include "ops/cuda/launch.cuh"

namespace heddle::ops {

namespace {

constexpr int kThreads = 256;

__device__ void feed_row(const FeedDrawnArgs& p, int64_t i) {
  const FedRow fed = p.fed[i];
  const int32_t missing = fed.missing_of == FedRow::kNothing ? 0 : p.missing[fed.missing_of];
  if (fed.sequence == FedRow::kWanted) {
    p.rows.logit_rows[fed.row] -= missing;
    return;
  }
  const int32_t token = p.drawn[fed.from];
  bool ended = token < 0;
  for (int32_t e = 0; e < fed.num_endings; ++e) {
    ended = ended || p.endings[fed.endings_begin + e] == token;
  }
  p.rows.ids[fed.row] = ended ? 0 : p.drawn_ids != nullptr ? p.drawn_ids[token] : token;
  if (p.masks != nullptr) p.rows.tree_masks[fed.row] = p.masks[fed.from];
  if (fed.sequence == FedRow::kIdAlone) return;
  if (missing > 0) {
    p.rows.positions[fed.row] -= missing;
    p.rows.context_lens[fed.sequence] -= missing;
    p.rows.kv_lens[fed.sequence] -= missing;
  }
  p.ended[fed.logit_row] = ended ? 1 : 0;
  if (!ended) return;
  p.rows.row_sequences[fed.row] = -1;
  p.rows.state_slots[fed.sequence] = -1;
}

// Whether all other blocks have called this before: the last block sees what they have written.
__device__ bool is_last_block(uint32_t* num_done) {
  __shared__ bool last;
  if (gridDim.x > 1) __threadfence();
  __syncthreads();
  if (gridDim.x == 1) return true;
  if (threadIdx.x == 0) last = atomicInc(num_done, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// A thread copies 16 bytes, or two page table changes. The host wrote them before the launch, so
// that they can be read before the wait, bypassing caches.
__global__ void __launch_bounds__(kThreads)
    bring_batch_kernel(const __grid_constant__ BringBatchArgs p) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t num_words = p.num_bytes / static_cast<int64_t>(sizeof(uint4));
  const int64_t pair = i - num_words;
  const bool brings = pair < 0, changes = !brings && pair < p.num_changes / 2;
  uint4 words{};
  if (brings) words = __ldcv(reinterpret_cast<const uint4*>(p.from) + i);
  if (changes) words = __ldcv(reinterpret_cast<const uint4*>(p.changes) + pair);
  wait_for_inputs();
  if (brings) reinterpret_cast<uint4*>(p.to)[i] = words;
  if (changes) {
    p.page_tables[words.x] = static_cast<int32_t>(words.y);
    p.page_tables[words.z] = static_cast<int32_t>(words.w);
  }
  if (!is_last_block(p.num_blocks_done)) return;
  if (threadIdx.x == 0 && p.read_number != nullptr) {
    *static_cast<volatile uint32_t*>(p.read_number) = p.number;
  }
  for (int64_t fed = threadIdx.x; fed < p.feed.num_fed; fed += kThreads) feed_row(p.feed, fed);
}

}  // namespace

Status bring_batch_cuda(CudaContext& context, const BringBatchArgs& args) {
  if (args.num_bytes == 0 && args.num_changes == 0 && args.feed.num_fed == 0) return {};
  const int64_t threads =
      args.num_bytes / static_cast<int64_t>(sizeof(uint4)) + args.num_changes / 2;
  const int64_t blocks = std::max<int64_t>(1, ceil_div(threads, kThreads));
  return launch(context, "bring_batch", bring_batch_kernel, grid_of(blocks), kThreads, args);
}

}  // namespace heddle::ops
