// SPDX-License-Identifier: Apache-2.0
// y[t, n] = sum over k of x[t, k] weight[n, k] + bias[n]; and the choice of the kernel for it.
// linear_kernel: a warp computes 4 x 4 elements of y, or 1 x 2 for one row and few elements; a lane
// has every 32nd octet of K (row_products.cuh). The 8 warps of a block have the same rows and
// neighbouring columns. Flops: 2 * T * N * K at the rate of fp32 multiply-adds; bytes: the weights
// once. Used in exact mode, and where neither skinny_product.h (up to 16 rows) nor dense_products.h
// supports the product. bias_kernel: y[t] = bias, a thread writes eight elements, before cuBLASLt
// adds its product.
#include "ops/cuda/launch.cuh"
#include "ops/gemm/dense_products.h"
#include "ops/gemm/linear.h"
#include "ops/gemm/linear_rows.cuh"
#include "ops/gemm/packed_linear.h"
#include "ops/gemm/skinny_product.h"

namespace heddle::ops {

namespace {

using linear_rows::kThreads;

Status multiply_rows(CudaContext& context, const LinearArgs& args) {
  const bool aligned = rows_are_aligned(args.x) && rows_are_aligned(args.weight);
  return with_plain_rows(args.x, args.x.row_stride, 0, [&](const auto& x) {
    return with_plain_rows(args.weight, args.weight.row_stride, 0, [&](const auto& weight) {
      return linear_rows::multiply(context, args, x, weight, aligned);
    });
  });
}

struct BiasParams {
  SourceRows bias;  // bias as one row [1, N]
  TargetRows y;
  int64_t N;
  int64_t octets_per_row, num_octets;
};

// y[t] = bias, before a product is added to it. A thread writes eight elements: T * N in all, the
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

// Multiplies through cuBLASLt. Error: kUnimplemented if it has no algorithm; y is undefined then.
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

// Fewest rows for cuBLASLt, whose kernels are made for many rows. Where skinny_products() has no
// kernel, fewer rows are computed by a warp for each element.
constexpr int64_t kMinDenseRows = 5;

}  // namespace

Status linear_cuda(CudaContext& context, const LinearArgs& args) {
  const SkinnyProducts skinny{.products = {&args, 1}};
  if (skinny_products_fit(context, skinny)) return skinny_products(context, skinny);
  if (args.weight.packed != nullptr) return packed_linear(context, args);
  const bool dense = context.products != nullptr && args.x.shape[0] >= kMinDenseRows &&
                     args.x.dtype == args.weight.dtype && args.x.shape[1] > 0 &&
                     args.weight.shape[0] > 0;
  if (!dense) return multiply_rows(context, args);
  // cuBLASLt is ten times slower for odd N (8,192 x 1,537: 670 us on an H200), so the last columns
  // are computed by linear_kernel.
  const int64_t N = args.weight.shape[0];
  const int64_t whole = N > kOctet ? N / kOctet * kOctet : N;
  const Status status = multiply_dense(context, plain_columns(args, 0, whole));
  if (status.code() == StatusCode::kUnimplemented) return multiply_rows(context, args);
  if (!status.ok() || whole == N) return status;
  return multiply_rows(context, plain_columns(args, whole, N - whole));
}

}  // namespace heddle::ops
