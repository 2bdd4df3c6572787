// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/norm/layer_norm.h"

namespace heddle::ops {

namespace {

struct Params {
  SourceRows x;
  TargetRows y;
  const float* weight;
  const float* bias;  // null: no bias
  int64_t T, H;
  float epsilon;
};

constexpr int kMostThreads = 256;

// A block normalises a row; thread i has octets i, i + threads, ... Sums run over ascending columns
// and are joined in the order of block_sum(). Reads a row three times, twice from the cache, and
// writes it once.
__global__ void __launch_bounds__(kMostThreads)
    layer_norm_kernel(const __grid_constant__ Params p) {
  __shared__ float scratch[kWarp];
  wait_for_inputs();
  const int64_t step = int64_t{blockDim.x} * kOctet;
  for (int64_t t = blockIdx.x; t < p.T; t += gridDim.x) {
    const auto sum_of = [&](const auto& term) {
      float sum = 0;
      for (int64_t h = threadIdx.x * int64_t{kOctet}; h < p.H; h += step) {
        float values[kOctet];
        p.x.load(t, h, p.H - h, values);
        for (int j = 0; j < kOctet && h + j < p.H; ++j) sum += term(values[j]);
      }
      return block_sum(sum, scratch);
    };
    const auto size = static_cast<float>(p.H);
    const float mean = sum_of([](float x) { return x; }) / size;
    __syncthreads();  // `scratch` may be used again
    const float squares = sum_of([mean](float x) { return (x - mean) * (x - mean); });
    const float scale = 1.0f / sqrtf(squares / size + p.epsilon);
    __syncthreads();
    for (int64_t h = threadIdx.x * int64_t{kOctet}; h < p.H; h += step) {
      float values[kOctet];
      p.x.load(t, h, p.H - h, values);
      for (int j = 0; j < kOctet && h + j < p.H; ++j) {
        const float bias = p.bias == nullptr ? 0.0f : p.bias[h + j];
        values[j] = (values[j] - mean) * scale * p.weight[h + j] + bias;
      }
      p.y.store(t, h, p.H - h, values);
    }
  }
}

}  // namespace

Status layer_norm_cuda(CudaContext& context, const LayerNormArgs& args) {
  const int64_t H = args.x.shape[1];
  const Params params{.x = SourceRows::of(args.x),
                      .y = TargetRows::of(args.y),
                      .weight = args.weight.as<float>(),
                      .bias = args.bias.as<float>(),
                      .T = args.x.shape[0],
                      .H = H,
                      .epsilon = args.epsilon};
  const auto threads = static_cast<unsigned>(
      std::min<int64_t>(kMostThreads, ceil_div(ceil_div(H, kOctet), kWarp) * kWarp));
  return launch(context, "layer_norm", layer_norm_kernel, grid_of(params.T), threads, params);
}

}  // namespace heddle::ops
