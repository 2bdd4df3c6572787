// SPDX-License-Identifier: Apache-2.0
// (y_a, y_b) = (x_a cos - x_b sin, x_b cos + x_a sin) for the rotated pairs of each head,
// optionally normalised first.
// A block processes eight heads of a row; all its threads compute the row's angles. A warp
// processes a head, a lane every 32nd pair (rotate_head.cuh). Bytes: 2 * T * N * D elements; sines
// and cosines once per eight heads. Bandwidth-bound. Used unless attention/rotate_append_cuda.cu
// does the rotation.
#include "ops/cuda/launch.cuh"
#include "ops/rope/rope.h"
#include "ops/rope/rotate_head.cuh"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  const int32_t* positions;
  Frequencies frequencies;
  void* y;
  int64_t x_stride, y_stride;
  int64_t T;
  int64_t num_heads;
  Rotation rotation;
};

constexpr int kHeadsPerBlock = 8;
constexpr int kThreads = kHeadsPerBlock * kWarp;

// A block rotates eight heads of a row, a warp each, after all its threads have computed the row's
// sines and cosines. Reads and writes 2 * T * N * D elements, with a norm x a second time from the
// cache; R/2 sines and cosines for eight heads.
template <typename Scalar>
__global__ void __launch_bounds__(kThreads) rope_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ float cosines[kMaxRotaryPairs];
  __shared__ float sines[kMaxRotaryPairs];
  const int64_t head = int64_t{blockIdx.y} * kHeadsPerBlock + threadIdx.x / kWarp;
  for (int64_t t = blockIdx.x; t < p.T; t += gridDim.x) {
    __syncthreads();  // the previous row has been rotated
    form_angles(p.frequencies, p.rotation.half, p.positions[t], cosines, sines);
    __syncthreads();
    if (head >= p.num_heads) continue;
    const Scalar* x = static_cast<const Scalar*>(p.x) + t * p.x_stride + head * p.rotation.D;
    Scalar* y = static_cast<Scalar*>(p.y) + t * p.y_stride + head * p.rotation.D;
    rotate_head(p.rotation, x, cosines, sines,
                [&](int64_t d, float value) { y[d] = rounded<Scalar>(value); });
  }
}

struct ScaleParams {
  const int32_t* positions;
  float* y;
  int64_t y_stride, T, length;
  double beta;
};

constexpr int kScaleThreads = 128;

// A thread computes a row. Reads and writes 8 bytes and computes one logarithm a row.
__global__ void __launch_bounds__(kScaleThreads)
    position_scale_kernel(const __grid_constant__ ScaleParams p) {
  wait_for_inputs();
  for (int64_t t = int64_t{blockIdx.x} * kScaleThreads + threadIdx.x; t < p.T;
       t += int64_t{gridDim.x} * kScaleThreads) {
    const auto contexts = static_cast<double>((p.positions[t] & ~kLongRope) / p.length);
    p.y[t * p.y_stride] = static_cast<float>(1 + p.beta * log1p(contexts));
  }
}

}  // namespace

Status position_scale_cuda(CudaContext& context, const PositionScaleArgs& args) {
  const ScaleParams params{.positions = args.positions.as<int32_t>(),
                           .y = static_cast<float*>(args.y.data),
                           .y_stride = args.y.row_stride,
                           .T = args.y.shape[0],
                           .length = args.length,
                           .beta = args.beta};
  return launch(context, "position_scale", position_scale_kernel,
                grid_of(ceil_div(params.T, kScaleThreads)), kScaleThreads, params);
}

Status rope_cuda(CudaContext& context, const RopeArgs& args) {
  const int64_t T = args.x.shape[0];
  const int64_t num_heads = args.x.shape[1] / args.head_dim;
  const Params params{.x = args.x.data,
                      .positions = args.positions.as<int32_t>(),
                      .frequencies = Frequencies::of(args),
                      .y = args.y.data,
                      .x_stride = args.x.row_stride,
                      .y_stride = args.y.row_stride,
                      .T = T,
                      .num_heads = num_heads,
                      .rotation = Rotation::of(args)};
  const dim3 grid(grid_of(T).x, static_cast<unsigned>(ceil_div(num_heads, kHeadsPerBlock)));
  return with_scalar(args.x.dtype, [&](auto scalar) {
    return launch(context, "rope", rope_kernel<typename decltype(scalar)::type>, grid, kThreads,
                  params);
  });
}

}  // namespace heddle::ops
