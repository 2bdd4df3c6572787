// SPDX-License-Identifier: Apache-2.0
// page[to] = page[from] (copy_pages) or row[to] = row[from] (copy_rows): a list of copies, all
// layers.
// Blocks of one grid.y own the keys (even) or the values (odd) of a layer. A thread owns the same
// pieces of every entry, 16 bytes or 1 each, and goes through the list in order; warps do not
// cooperate.
// Bytes: each page or row read once and written once: bandwidth-bound. The only form on CUDA.
#include <algorithm>

#include "ops/attention/page_copy.h"
#include "ops/cuda/launch.cuh"

namespace heddle::ops {

namespace {

struct Params {
  const KvLayer* layers;
  const IdCopy* copies;
  int64_t num_copies;
  int64_t per_page;  // number of 16-byte or 1-byte pieces of a page
};

constexpr int kThreads = 256;

__device__ int64_t bytes_of_number(DType dtype) {
  if (dtype == DType::kF32) return 4;
  return dtype == DType::kF8E4M3 ? 1 : 2;
}

// A thread copies the same pieces of a page or a row for all entries of the list, one entry after
// the other, so that the entries take effect in order.
template <typename Piece>
__device__ void copy_pieces(void* pool, int64_t bytes, const Params& p) {
  const int64_t pieces = bytes / static_cast<int64_t>(sizeof(Piece));
  auto* all = static_cast<Piece*>(pool);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < pieces; i += stride) {
    for (int64_t entry = 0; entry < p.num_copies; ++entry) {
      all[p.copies[entry].to * pieces + i] = all[p.copies[entry].from * pieces + i];
    }
  }
}

// Blocks with blockIdx.y = 2 * layer copy the keys of the layer, those with 2 * layer + 1 its
// values, in pieces of 16 bytes if everything is aligned to that. Reads and writes each page or row
// once: bandwidth-bound.
__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const KvLayer& layer = p.layers[blockIdx.y / 2];
  const MutableTensorView& pool = blockIdx.y % 2 == 0 ? layer.k : layer.v;
  if (pool.data == nullptr) return;  // the layer's values are a part of its keys
  const int64_t bytes = pool.row_stride / p.per_page * bytes_of_number(pool.dtype);
  if (bytes % 16 == 0 && reinterpret_cast<uintptr_t>(pool.data) % 16 == 0) {
    copy_pieces<uint4>(pool.data, bytes, p);
  } else {
    copy_pieces<uint8_t>(pool.data, bytes, p);
  }
}

// Enqueues the copies of all layers; `name` is the name of the launch.
Status copy_all(CudaContext& context, const char* name, const MirroredSpan<KvLayer>& layers,
                const MirroredSpan<IdCopy>& copies, int64_t per_page) {
  int64_t bytes = 0;  // bytes of a copy in the widest layer
  for (const KvLayer& layer : layers.host) {
    bytes = std::max({bytes, bytes_of(layer.k.dtype, layer.k.row_stride / per_page),
                      bytes_of(layer.v.dtype, layer.v.row_stride / per_page)});
  }
  const Params params{.layers = layers.device,
                      .copies = copies.device,
                      .num_copies = copies.size(),
                      .per_page = per_page};
  dim3 grid = grid_of(ceil_div(bytes, 16 * kThreads));
  grid.y = static_cast<unsigned>(2 * layers.size());
  return launch(context, name, copy_kernel, grid, kThreads, params);
}

}  // namespace

Status copy_pages_cuda(CudaContext& context, const PageCopyArgs& args) {
  return copy_all(context, "copy_pages", args.layers, args.pages, /*per_page=*/1);
}

Status copy_rows_cuda(CudaContext& context, const RowCopyArgs& args) {
  const int64_t page_size = args.layers.host.front().k.shape[1];
  return copy_all(context, "copy_rows", args.layers, args.rows, page_size);
}

}  // namespace heddle::ops
