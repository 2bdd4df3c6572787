// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/rope/rope.h"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  const float* norm_weight;  // null: none
  const int32_t* positions;
  const float* inverse_frequencies;
  void* y;
  int64_t x_stride, y_stride;
  int64_t T;
  int64_t num_heads, D;
  int64_t first, half;  // the channels that are rotated
  bool interleaved;
  float factor, epsilon;
};

constexpr int kHeadsPerBlock = 8;
constexpr int kThreads = kHeadsPerBlock * kWarp;

// A block takes eight heads of a row, a warp each, after all its threads have formed the row's
// sines and cosines; a lane owns every 32nd pair and every 32nd channel that is not rotated, so
// that y may be x. The sum of the norm runs over ascending channels in each lane and is joined by
// warp_sum(). Moves 2 * T * N * D elements, x twice from the cache with a norm; R/2 sines and
// cosines for eight heads.
template <typename Scalar>
__global__ void __launch_bounds__(kThreads) rope_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ float cosines[kMaxRotaryPairs];
  __shared__ float sines[kMaxRotaryPairs];
  const int lane = threadIdx.x % kWarp;
  const int64_t head = int64_t{blockIdx.y} * kHeadsPerBlock + threadIdx.x / kWarp;
  for (int64_t t = blockIdx.x; t < p.T; t += gridDim.x) {
    const auto position = static_cast<float>(p.positions[t]);
    __syncthreads();  // the row before has been rotated
    for (int64_t i = threadIdx.x; i < p.half; i += kThreads) {
      float sine, cosine;
      sincosf(p.inverse_frequencies[i] * position, &sine, &cosine);
      cosines[i] = cosine * p.factor;
      sines[i] = sine * p.factor;
    }
    __syncthreads();
    if (head >= p.num_heads) continue;
    const Scalar* x = static_cast<const Scalar*>(p.x) + t * p.x_stride + head * p.D;
    Scalar* y = static_cast<Scalar*>(p.y) + t * p.y_stride + head * p.D;
    float scale = 1.0f;
    if (p.norm_weight != nullptr) {
      float sum = 0;
      for (int64_t d = lane; d < p.D; d += kWarp) {
        const float value = as_float(x[d]);
        sum += value * value;
      }
      scale = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(p.D) + p.epsilon);
    }
    const auto channel = [&](int64_t d) {
      const float value = as_float(x[d]);
      return p.norm_weight != nullptr ? value * scale * p.norm_weight[d] : value;
    };
    for (int64_t i = lane; i < p.half; i += kWarp) {
      const int64_t a = p.first + (p.interleaved ? 2 * i : i);
      const int64_t b = p.interleaved ? a + 1 : a + p.half;
      const float at_a = channel(a);
      const float at_b = channel(b);
      y[a] = rounded<Scalar>(at_a * cosines[i] - at_b * sines[i]);
      y[b] = rounded<Scalar>(at_b * cosines[i] + at_a * sines[i]);
    }
    for (int64_t d = lane; d < p.D - 2 * p.half; d += kWarp) {
      const int64_t passed = d < p.first ? d : d + 2 * p.half;
      y[passed] = rounded<Scalar>(channel(passed));
    }
  }
}

}  // namespace

Status rope_cuda(CudaContext& context, const RopeArgs& args) {
  const int64_t T = args.x.shape[0];
  const int64_t num_heads = args.x.shape[1] / args.head_dim;
  const Params params{.x = args.x.data,
                      .norm_weight = args.norm_weight.as<float>(),
                      .positions = args.positions.as<int32_t>(),
                      .inverse_frequencies = args.inverse_frequencies.as<float>(),
                      .y = args.y.data,
                      .x_stride = args.x.row_stride,
                      .y_stride = args.y.row_stride,
                      .T = T,
                      .num_heads = num_heads,
                      .D = args.head_dim,
                      .first = args.first_channel,
                      .half = args.inverse_frequencies.shape[0],
                      .interleaved = args.interleaved,
                      .factor = args.factor,
                      .epsilon = args.epsilon};
  const dim3 grid(grid_of(T).x, static_cast<unsigned>(ceil_div(num_heads, kHeadsPerBlock)));
  return with_scalar(args.x.dtype, [&](auto scalar) {
    return launch(context, "rope", rope_kernel<typename decltype(scalar)::type>, grid, kThreads,
                  params);
  });
}

}  // namespace heddle::ops
