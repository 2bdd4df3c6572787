// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/norm/rms_norm.h"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  void* residual;  // null: none
  const float* weight;
  void* y;
  int64_t x_stride, residual_stride, y_stride;
  int64_t num_groups;  // T * G
  int64_t G, H;
  float epsilon;
};

constexpr int kThreads = 256;

// A block normalises one group of H columns, a thread every kThreads-th column of it. Thread sums
// run over ascending columns and are joined in the order of block_sum(): an order that depends on H
// alone. Moves 2 * H elements a group, 4 with a residual; x is read twice, the second time from the
// cache.
template <typename Scalar>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(const __grid_constant__ Params p) {
  __shared__ float scratch[kWarp];
  for (int64_t group = blockIdx.x; group < p.num_groups; group += gridDim.x) {
    const int64_t t = group / p.G;
    const int64_t column = group % p.G * p.H;
    const auto* x = static_cast<const Scalar*>(p.x) + t * p.x_stride + column;
    auto* y = static_cast<Scalar*>(p.y) + t * p.y_stride + column;
    Scalar* residual = nullptr;
    if (p.residual != nullptr) {
      residual = static_cast<Scalar*>(p.residual) + t * p.residual_stride + column;
    }
    float sum = 0;
    for (int64_t h = threadIdx.x; h < p.H; h += kThreads) {
      float value = as_float(x[h]);
      if (residual != nullptr) {
        residual[h] = rounded<Scalar>(as_float(residual[h]) + value);
        value = as_float(residual[h]);
      }
      sum += value * value;
    }
    sum = block_sum(sum, scratch);
    const float scale = 1.0f / sqrtf(sum / static_cast<float>(p.H) + p.epsilon);
    for (int64_t h = threadIdx.x; h < p.H; h += kThreads) {  // each thread reads what it wrote
      const float value = as_float(residual != nullptr ? residual[h] : x[h]);
      y[h] = rounded<Scalar>(value * scale * p.weight[h]);
    }
  }
}

}  // namespace

Status rms_norm_cuda(CudaContext& context, const RmsNormArgs& args) {
  const int64_t H = args.weight.shape[0];
  const int64_t G = args.x.shape[1] / H;
  const Params params{.x = args.x.data,
                      .residual = args.residual.data,
                      .weight = args.weight.as<float>(),
                      .y = args.y.data,
                      .x_stride = args.x.row_stride,
                      .residual_stride = args.residual.row_stride,
                      .y_stride = args.y.row_stride,
                      .num_groups = args.x.shape[0] * G,
                      .G = G,
                      .H = H,
                      .epsilon = args.epsilon};
  return with_scalar(args.x.dtype, [&](auto scalar) {
    return launch(context, "rms_norm", rms_norm_kernel<typename decltype(scalar)::type>,
                  grid_of(params.num_groups), kThreads, params);
  });
}

}  // namespace heddle::ops
