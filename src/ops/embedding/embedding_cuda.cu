// SPDX-License-Identifier: Apache-2.0
// y[t] = table[ids[t]], converted to y's dtype.
// A thread owns eight neighbouring elements of a row, and loops with the grid's size as stride.
// Bytes: T * H elements of the table and of y: bandwidth-bound. The only form on CUDA.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/embedding/embedding.h"

namespace heddle::ops {

namespace {

struct Params {
  const int32_t* ids;
  SourceRows table;
  TargetRows y;
  int64_t H;
  int64_t octets_per_row;
  int64_t num_octets;
};

constexpr int kThreads = 256;

// A thread copies eight neighbouring elements of a row. Moves T * H elements of the table and of y:
// the floor is their bytes over the bandwidth.
__global__ void __launch_bounds__(kThreads) embedding_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.num_octets;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t t = i / p.octets_per_row;
    const int64_t h = i % p.octets_per_row * kOctet;
    float values[kOctet];
    p.table.load(p.ids[t], h, p.H - h, values);
    p.y.store(t, h, p.H - h, values);
  }
}

}  // namespace

Status embedding_cuda(CudaContext& context, const EmbeddingArgs& args) {
  const int64_t H = args.table.shape[1];
  const int64_t octets = ceil_div(H, kOctet);
  const Params params{.ids = args.ids.as<int32_t>(),
                      .table = SourceRows::of(args.table),
                      .y = TargetRows::of(args.y),
                      .H = H,
                      .octets_per_row = octets,
                      .num_octets = args.ids.shape[0] * octets};
  return launch(context, "embedding", embedding_kernel,
                grid_of(ceil_div(params.num_octets, kThreads)), kThreads, params);
}

}  // namespace heddle::ops
