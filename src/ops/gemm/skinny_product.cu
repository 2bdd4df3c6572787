// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/gemm/skinny_product.h"

namespace heddle::ops {

namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStep = kWarp * kOctet;  // columns of K that a warp loads at once
constexpr int kInFlight = 8;           // octets of weights that a lane loads together
constexpr int64_t kMostColumns = 8192;

struct Params {
  const CudaBf16* x;
  const CudaBf16* weight;
  const float* bias;  // null: none
  TargetRows y;
  int64_t x_stride, weight_stride;
  int T, K, N;
};

// A warp takes whole weight rows, every kWarps * gridDim-th, so that all warps have the same number
// but for one; x lies in shared memory. A lane's eight loads of a row go out together before the
// first is used, and those of the next row before the sums of this one are joined.
template <int kRows>
__global__ void __launch_bounds__(kThreads, 2) skinny_kernel(const __grid_constant__ Params p) {
  extern __shared__ uint4 x[];  // [kRows, K / 8]
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int octets = p.K / kOctet;
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  const int steps = p.K / kStep;
  int n = static_cast<int>(blockIdx.x) * kWarps + warp;

  uint4 w[kInFlight];
  const auto load = [&](int row, int first_step) {
    const auto* from = reinterpret_cast<const uint4*>(p.weight + row * p.weight_stride);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (first_step + i < steps) w[i] = __ldcs(from + (first_step + i) * kWarp + lane);
    }
  };
  if (n < p.N) load(n, 0);  // weights do not wait for x
  wait_for_inputs();
  for (int r = 0; r < kRows; ++r) {
    const auto* from = reinterpret_cast<const uint4*>(p.x + min(r, p.T - 1) * p.x_stride);
    for (int i = static_cast<int>(threadIdx.x); i < octets; i += kThreads) {
      x[r * octets + i] = from[i];
    }
  }
  __syncthreads();
  while (n < p.N) {
    float sums[kRows] = {};
    const int next = n + stride;
    for (int first = 0; first < steps; first += kInFlight) {
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i >= steps) break;
        float weights[kOctet];
        load_octet(reinterpret_cast<const CudaBf16*>(&w[i]), weights);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float values[kOctet];
          load_octet(reinterpret_cast<const CudaBf16*>(&x[r * octets + (first + i) * kWarp + lane]),
                     values);
#pragma unroll
          for (int j = 0; j < kOctet; ++j) sums[r] = fmaf(values[j], weights[j], sums[r]);
        }
      }
      if (first + kInFlight < steps) {
        load(n, first + kInFlight);
      } else if (next < p.N) {
        load(next, 0);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r] = warp_sum(sums[r]);
    const float bias = p.bias != nullptr ? p.bias[n] : 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (lane == r && r < p.T) p.y.store_one(r, n, sums[r] + bias);
    }
    n = next;
  }
}

template <int kRows>
Status launch_rows(CudaContext& context, const Params& params) {
  const auto shared = static_cast<size_t>(kRows) * static_cast<size_t>(params.K) * 2;
  HEDDLE_RETURN_IF_ERROR(allow_shared(skinny_kernel<kRows>, kRows * kMostColumns * 2));
  const int64_t most = int64_t{2} * context.gpu.properties().num_multiprocessors;
  return launch(context, "linear", skinny_kernel<kRows>,
                grid_of(std::min(most, ceil_div(params.N, kWarps))), kThreads, params, shared);
}

}  // namespace

bool skinny_product_fits(const CudaContext& context, const LinearArgs& args) {
  const int64_t T = args.x.shape[0], K = args.x.shape[1];
  return !context.exact && T >= 1 && T <= kSkinnyRows && args.x.dtype == DType::kBf16 &&
         args.weight.dtype == DType::kBf16 && K > 0 && K % kStep == 0 && K <= kMostColumns &&
         rows_are_aligned(args.x) && rows_are_aligned(args.weight);
}

Status skinny_product(CudaContext& context, const LinearArgs& args) {
  const Params params{.x = args.x.as<CudaBf16>(),
                      .weight = args.weight.as<CudaBf16>(),
                      .bias = args.bias.as<float>(),
                      .y = TargetRows::of(args.y),
                      .x_stride = args.x.row_stride,
                      .weight_stride = args.weight.row_stride,
                      .T = static_cast<int>(args.x.shape[0]),
                      .K = static_cast<int>(args.x.shape[1]),
                      .N = static_cast<int>(args.weight.shape[0])};
  if (params.T == 1) return launch_rows<1>(context, params);
  if (params.T == 2) return launch_rows<2>(context, params);
  return launch_rows<4>(context, params);
}

}  // namespace heddle::ops
