// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/attention/page_copy.h"
#include "ops/cuda/launch.cuh"

namespace heddle::ops {

namespace {

struct Params {
  const KvLayer* layers;
  const IdCopy* pages;
  int64_t num_pages;  // of the list
};

constexpr int kThreads = 256;

__device__ int64_t bytes_of_number(DType dtype) {
  if (dtype == DType::kF32) return 4;
  return dtype == DType::kF8E4M3 ? 1 : 2;
}

// A thread takes the same pieces of a page through all entries of the list, so that their order
// holds.
template <typename Piece>
__device__ void copy_pieces(void* pool, int64_t page_bytes, const Params& p) {
  const int64_t pieces = page_bytes / static_cast<int64_t>(sizeof(Piece));
  auto* all = static_cast<Piece*>(pool);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < pieces; i += stride) {
    for (int64_t entry = 0; entry < p.num_pages; ++entry) {
      all[p.pages[entry].to * pieces + i] = all[p.pages[entry].from * pieces + i];
    }
  }
}

// Blocks of grid.y 2 * layer copy its keys, those of 2 * layer + 1 its values, in pieces of 16
// bytes where pages are aligned to that. Reads and writes each page once: bandwidth-bound.
__global__ void __launch_bounds__(kThreads) copy_pages_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const KvLayer& layer = p.layers[blockIdx.y / 2];
  const MutableTensorView& pool = blockIdx.y % 2 == 0 ? layer.k : layer.v;
  if (pool.data == nullptr) return;  // values that are a part of the keys
  const int64_t page_bytes = pool.row_stride * bytes_of_number(pool.dtype);
  if (page_bytes % 16 == 0 && reinterpret_cast<uintptr_t>(pool.data) % 16 == 0) {
    copy_pieces<uint4>(pool.data, page_bytes, p);
  } else {
    copy_pieces<uint8_t>(pool.data, page_bytes, p);
  }
}

}  // namespace

Status copy_pages_cuda(CudaContext& context, const PageCopyArgs& args) {
  int64_t page_bytes = 0;  // of the widest layer
  for (const KvLayer& layer : args.layers.host) {
    page_bytes = std::max({page_bytes, bytes_of(layer.k.dtype, layer.k.row_stride),
                           bytes_of(layer.v.dtype, layer.v.row_stride)});
  }
  const Params params{
      .layers = args.layers.device, .pages = args.pages.device, .num_pages = args.pages.size()};
  dim3 grid = grid_of(ceil_div(page_bytes, 16 * kThreads));
  grid.y = static_cast<unsigned>(2 * args.layers.size());
  return launch(context, "copy_pages", copy_pages_kernel, grid, kThreads, params);
}

}  // namespace heddle::ops
