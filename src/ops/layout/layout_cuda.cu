// SPDX-License-Identifier: Apache-2.0
// y[t] = x[rows[t]], or x[t] without a list; any dtype.
// A thread copies a unit of 16, 4, 2 or 1 bytes, the largest that fits widths, strides and
// addresses, and loops with the grid's size as stride. Bytes: each read once and written once:
// bandwidth-bound. The only kernel for these ops on CUDA.
#include "ops/cuda/launch.cuh"
#include "ops/layout/layout.h"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  const int32_t* rows;  // null: row t of x becomes row t of y
  void* y;
  int64_t x_rows;
  int64_t x_stride, y_stride;  // distance between rows in units of the copy
  int64_t width;               // units of the copy in a row
  int64_t num_units;           // units of the copy in all rows of y
};

constexpr int kThreads = 256;

// A thread copies one unit of a row. Reads and writes every byte once: the floor is those bytes
// over the bandwidth.
template <typename Unit>
__global__ void __launch_bounds__(kThreads) copy_rows_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.num_units;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t t = i / p.width;
    const int64_t column = i % p.width;
    const int64_t source = p.rows != nullptr ? p.rows[t] : t;
    if (source < 0 || source >= p.x_rows) continue;
    static_cast<Unit*>(p.y)[t * p.y_stride + column] =
        static_cast<const Unit*>(p.x)[source * p.x_stride + column];
  }
}

template <typename Unit>
Status copy_units(CudaContext& context, const TensorView& x, const int32_t* rows,
                  const MutableTensorView& y) {
  constexpr auto kUnit = static_cast<int64_t>(sizeof(Unit));
  const int64_t width = bytes_of(x.dtype, x.shape[1]) / kUnit;
  const Params params{.x = x.data,
                      .rows = rows,
                      .y = y.data,
                      .x_rows = x.shape[0],
                      .x_stride = bytes_of(x.dtype, x.row_stride) / kUnit,
                      .y_stride = bytes_of(y.dtype, y.row_stride) / kUnit,
                      .width = width,
                      .num_units = y.shape[0] * width};
  return launch(context, "copy_rows", copy_rows_kernel<Unit>,
                grid_of(ceil_div(params.num_units, kThreads)), kThreads, params);
}

}  // namespace

Status copy_rows_cuda(CudaContext& context, const TensorView& x, std::span<const int32_t> rows,
                      const MutableTensorView& y) {
  const auto bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(x.data)) |
                    static_cast<uint64_t>(reinterpret_cast<uintptr_t>(y.data)) |
                    static_cast<uint64_t>(bytes_of(x.dtype, x.row_stride)) |
                    static_cast<uint64_t>(bytes_of(y.dtype, y.row_stride)) |
                    static_cast<uint64_t>(bytes_of(x.dtype, x.shape[1]));
  const int32_t* list = rows.empty() ? nullptr : rows.data();
  if (bits % 16 == 0) return copy_units<uint4>(context, x, list, y);
  if (bits % 4 == 0) return copy_units<uint32_t>(context, x, list, y);
  if (bits % 2 == 0) return copy_units<uint16_t>(context, x, list, y);
  return copy_units<uint8_t>(context, x, list, y);
}

}  // namespace heddle::ops
