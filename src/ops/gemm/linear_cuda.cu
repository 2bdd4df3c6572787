// SPDX-License-Identifier: Apache-2.0
// y[t, n] = sum over k of x[t, k] weight[n, k] + bias[n]; and the choice between the forms of that
// product.
// linear_kernel: a warp owns 4 x 4 elements of y, or 1 x 2 for one row and few elements; a lane
// every 32nd octet of K (row_products.cuh). The 8 warps of a block have the same rows and
// neighbouring columns.
// Flops: 2 * T * N * K at the rate of fp32 multiply-adds; bytes: the weights once.
// Taken in exact mode, and where neither skinny_product.h (up to 16 rows) nor dense_products.h has
// a form.
// bias_kernel: y[t] = bias, a thread eight elements, before cuBLASLt adds its product.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/row_products.cuh"
#include "ops/gemm/dense_products.h"
#include "ops/gemm/linear.h"
#include "ops/gemm/skinny_product.h"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  const void* weight;
  const float* bias;  // null: none
  TargetRows y;
  int64_t x_stride, weight_stride;
  int64_t T, K, N;
  int64_t row_tiles, num_tiles;
  bool aligned;
};

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

// A warp computes kRows x kColumns elements of y; the warps of a block share the rows and take
// neighbouring columns, and neighbouring blocks share the columns, so that weights come from memory
// once and from the caches afterwards. Moves (N * K weights once) + x + y, does 2 * T * N * K
// flops: with one row the floor is the weights' bytes over the bandwidth (1 x 2 tiles: enough warps
// and loads in flight for N of 2,048); with many, the flops at the rate of fp32 multiply-adds.
template <typename X, typename Weight, int kRows, int kColumns>
__global__ void __launch_bounds__(kThreads, 2) linear_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  for (int64_t tile = blockIdx.x; tile < p.num_tiles; tile += gridDim.x) {
    const int64_t t = tile % p.row_tiles * kRows;
    const int64_t n = (tile / p.row_tiles * kWarps + warp) * kColumns;
    if (n >= p.N) continue;
    const X* x[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      x[r] = static_cast<const X*>(p.x) + min(t + r, p.T - 1) * p.x_stride;
    }
    const Weight* weight[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      weight[c] = static_cast<const Weight*>(p.weight) + min(n + c, p.N - 1) * p.weight_stride;
    }
    float sums[kRows][kColumns];
    row_products(x, weight, p.aligned, p.K, sums);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (lane != r * kColumns + c || t + r >= p.T || n + c >= p.N) continue;
        p.y.store_one(t + r, n + c, p.bias != nullptr ? sums[r][c] + p.bias[n + c] : sums[r][c]);
      }
    }
  }
}

template <typename X, typename Weight, int kRows, int kColumns>
Status launch_tiles(CudaContext& context, Params params) {
  params.row_tiles = ceil_div(params.T, kRows);
  params.num_tiles = params.row_tiles * ceil_div(params.N, kWarps * kColumns);
  return launch(context, "linear", linear_kernel<X, Weight, kRows, kColumns>,
                grid_of(params.num_tiles), kThreads, params);
}

constexpr int64_t kFewElements = 4096;  // of y

Status multiply_rows(CudaContext& context, const LinearArgs& args) {
  const Params params{.x = args.x.data,
                      .weight = args.weight.data,
                      .bias = args.bias.as<float>(),
                      .y = TargetRows::of(args.y),
                      .x_stride = args.x.row_stride,
                      .weight_stride = args.weight.row_stride,
                      .T = args.x.shape[0],
                      .K = args.x.shape[1],
                      .N = args.weight.shape[0],
                      .aligned = rows_are_aligned(args.x) && rows_are_aligned(args.weight)};
  return with_scalar(args.x.dtype, [&](auto x) {
    return with_scalar(args.weight.dtype, [&](auto weight) {
      using X = typename decltype(x)::type;
      using Weight = typename decltype(weight)::type;
      // Where there are few elements, more warps with more loads in flight bring them sooner.
      return params.T == 1 || params.T * params.N <= kFewElements
                 ? launch_tiles<X, Weight, 1, 2>(context, params)
                 : launch_tiles<X, Weight, 4, 4>(context, params);
    });
  });
}

struct BiasParams {
  SourceRows bias;  // [1, N]
  TargetRows y;
  int64_t N;
  int64_t octets_per_row, num_octets;
};

// y[t] = bias, for a product that is added to it. A thread writes eight elements: T * N in all, the
// floor is their bytes over the bandwidth.
__global__ void __launch_bounds__(kThreads) bias_kernel(const __grid_constant__ BiasParams p) {
  wait_for_inputs();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.num_octets;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t n = i % p.octets_per_row * kOctet;
    float values[kOctet];
    p.bias.load(0, n, p.N - n, values);
    p.y.store(i / p.octets_per_row, n, p.N - n, values);
  }
}

// Through the library. Error: kUnimplemented where it has no algorithm; y is undefined then.
Status multiply_dense(CudaContext& context, const LinearArgs& args) {
  const int64_t N = args.weight.shape[0];
  const bool biased = args.bias.data != nullptr;
  if (biased) {
    const int64_t octets = ceil_div(N, kOctet);
    const TensorView bias(args.bias.data, DType::kF32, Shape{1, N});
    const BiasParams params{.bias = SourceRows::of(bias),
                            .y = TargetRows::of(args.y),
                            .N = N,
                            .octets_per_row = octets,
                            .num_octets = args.x.shape[0] * octets};
    HEDDLE_RETURN_IF_ERROR(launch(context, "linear_bias", bias_kernel,
                                  grid_of(ceil_div(params.num_octets, kThreads)), kThreads,
                                  params));
  }
  return context.products->multiply(
      context.stream, {.x = args.x, .weight = args.weight, .y = args.y, .accumulate = biased});
}

// The product of `count` rows of the weight from `first` on.
LinearArgs columns_of(const LinearArgs& args, int64_t first, int64_t count) {
  LinearArgs part = args;
  const auto* weight = static_cast<const std::byte*>(args.weight.data);
  part.weight =
      TensorView(weight + bytes_of(args.weight.dtype, first * args.weight.row_stride),
                 args.weight.dtype, Shape{count, args.weight.shape[1]}, args.weight.row_stride);
  auto* y = static_cast<std::byte*>(args.y.data);
  part.y = MutableTensorView(y + bytes_of(args.y.dtype, first), args.y.dtype,
                             Shape{args.y.shape[0], count}, args.y.row_stride);
  if (args.bias.data != nullptr) {
    part.bias = TensorView(args.bias.as<float>() + first, DType::kF32, Shape{count});
  }
  return part;
}

// Where skinny_products() has no form, fewer rows get a warp for each element: the library's
// kernels are made for more.
constexpr int64_t kMinDenseRows = 5;

}  // namespace

Status linear_cuda(CudaContext& context, const LinearArgs& args) {
  const SkinnyProducts skinny{.products = {&args, 1}};
  if (skinny_products_fit(context, skinny)) return skinny_products(context, skinny);
  const bool dense = context.products != nullptr && args.x.shape[0] >= kMinDenseRows &&
                     args.x.dtype == args.weight.dtype && args.x.shape[1] > 0 &&
                     args.weight.shape[0] > 0;
  if (!dense) return multiply_rows(context, args);
  // The library is ten times slower where N is odd (8,192 x 1,537: 670 us on an H200), so the last
  // columns are ours.
  const int64_t N = args.weight.shape[0];
  const int64_t whole = N > kOctet ? N / kOctet * kOctet : N;
  const Status status = multiply_dense(context, columns_of(args, 0, whole));
  if (status.code() == StatusCode::kUnimplemented) return multiply_rows(context, args);
  if (!status.ok() || whole == N) return status;
  return multiply_rows(context, columns_of(args, whole, N - whole));
}

}  // namespace heddle::ops
