// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/launch.cuh"
#include "ops/sampling/feed_drawn.h"

namespace heddle::ops {

namespace {

constexpr int kThreads = 64;

__global__ void __launch_bounds__(kThreads)
    feed_drawn_kernel(const __grid_constant__ FeedDrawnArgs p) {
  wait_for_inputs();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.num_fed) return;
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

}  // namespace

Status feed_drawn_cuda(CudaContext& context, const FeedDrawnArgs& args) {
  return launch(context, "feed_drawn", feed_drawn_kernel, grid_of(ceil_div(args.num_fed, kThreads)),
                kThreads, args);
}

}  // namespace heddle::ops
