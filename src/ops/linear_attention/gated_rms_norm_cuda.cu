// SPDX-License-Identifier: Apache-2.0
// y = x / rms(x) * weight * silu(z), or * sigmoid(z), over heads of D columns; or u / rms(u) *
// weight, u = x * silu(z).
// gated_norm_kernel: one warp per head; each lane has every 32nd column. gated_norm_octets_kernel:
// D / 8 lanes per head; each lane has one octet (8 neighbouring columns). wide_gated_norm_kernel:
// one block per head; each thread has up to four octets.
// Bytes: reads x and z once and writes y once: bandwidth-bound.
// The two kernels with octets need rows and weights aligned to 16 bytes and D a multiple of 8. The
// first of them serves D / 8 a power of two up to 32, the wide one D of 257 to 16,384. Everything
// else uses gated_norm_kernel.
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/linear_attention/gated_rms_norm.h"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  const void* z;
  const float* weight;
  void* y;
  int64_t x_stride, z_stride, y_stride;
  int64_t num_heads;  // T * N heads in all
  int64_t N, D;
  int64_t V;  // width of the weight
  float epsilon;
  NormGate gate;
  bool gate_first;
};

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kMostThreads = 512;  // threads of a block in wide_gated_norm_kernel
// Most octets that a thread of wide_gated_norm_kernel keeps in registers.
constexpr int64_t kMostHeld = 4;

__device__ inline float opening_of(const Params& p, float gate) {
  return (p.gate == NormGate::kSigmoid ? 1.0f : gate) / (1.0f + expf(-gate));
}

// A warp normalises one head, a lane has every 32nd column of it. Lane sums run over ascending
// columns and are joined by warp_sum(), in an order that depends on D alone. Reads x and z and
// writes y once: bandwidth-bound; x is read twice, the second time from the cache.
template <typename Scalar>
__global__ void __launch_bounds__(kThreads) gated_norm_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int64_t lane = threadIdx.x % kWarp;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t head = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; head < p.num_heads;
       head += stride) {
    const int64_t t = head / p.N, column = head % p.N * p.D;
    const auto* x = static_cast<const Scalar*>(p.x) + t * p.x_stride + column;
    const auto* z = static_cast<const Scalar*>(p.z) + t * p.z_stride + column;
    auto* y = static_cast<Scalar*>(p.y) + t * p.y_stride + column;
    const float* weight = p.weight + column % p.V;
    const auto opening = [&p, z](int64_t c) { return opening_of(p, as_float(z[c])); };
    float sum = 0;
    for (int64_t c = lane; c < p.D; c += kWarp) {
      float value = as_float(x[c]);
      if (p.gate_first) value = __fmul_rn(value, opening(c));
      sum = fmaf(value, value, sum);
    }
    const float scale = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(p.D) + p.epsilon);
    for (int64_t c = lane; c < p.D; c += kWarp) {
      y[c] = rounded<Scalar>(as_float(x[c]) * scale * weight[c] * opening(c));
    }
  }
}

// The same norm for wider heads whose rows are aligned to 16 bytes. A block computes a head, and a
// thread holds up to kHeld octets of it, so that everything is loaded only once. A thread sums its
// columns in ascending order; block_sum() adds the sums of the threads.
template <typename Scalar, int kHeld>
__global__ void __launch_bounds__(kMostThreads)
    wide_gated_norm_kernel(const __grid_constant__ Params p) {
  __shared__ float scratch[kWarp];
  wait_for_inputs();
  const int64_t first = int64_t{threadIdx.x} * kOctet;
  const int64_t step = int64_t{blockDim.x} * kOctet;
  for (int64_t head = blockIdx.x; head < p.num_heads; head += gridDim.x) {
    const int64_t t = head / p.N, column = head % p.N * p.D;
    const auto* x = static_cast<const Scalar*>(p.x) + t * p.x_stride + column;
    const auto* z = static_cast<const Scalar*>(p.z) + t * p.z_stride + column;
    auto* y = static_cast<Scalar*>(p.y) + t * p.y_stride + column;
    const float* weight = p.weight + column % p.V;
    float values[kHeld][kOctet];
    float openings[kHeld][kOctet];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int64_t c = first + i * step;
      if (c >= p.D) break;
      load_octet(x + c, values[i]);
      load_octet(z + c, openings[i]);
#pragma unroll
      for (int j = 0; j < kOctet; ++j) {
        openings[i][j] = opening_of(p, openings[i][j]);
        if (p.gate_first) {
          values[i][j] = __fmul_rn(values[i][j], openings[i][j]);
          openings[i][j] = 1.0f;
        }
        sum = fmaf(values[i][j], values[i][j], sum);
      }
    }
    const float scale = 1.0f / sqrtf(block_sum(sum, scratch) / static_cast<float>(p.D) + p.epsilon);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int64_t c = first + i * step;
      if (c >= p.D) break;
      float weights[kOctet];
      load_octet(weight + c, weights);
#pragma unroll
      for (int j = 0; j < kOctet; ++j)
        values[i][j] = values[i][j] * scale * weights[j] * openings[i][j];
      store_octet(values[i], y + c);
    }
  }
}

// The same norm for heads of 8, 16, ... 256 columns, 16-byte aligned: D / 8 lanes have an octet
// each, so that everything is loaded once. Lane sums run over ascending columns and are joined
// pairwise.
template <typename Scalar>
__global__ void __launch_bounds__(kThreads)
    gated_norm_octets_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int lanes = static_cast<int>(p.D) / kOctet;  // lanes of each head
  const int heads_at_once = kThreads / lanes;
  const int64_t c = threadIdx.x % lanes * kOctet;
  const int64_t stride = int64_t{gridDim.x} * heads_at_once;
  // All lanes of a warp must take part in the sums.
  for (int64_t begin = int64_t{blockIdx.x} * heads_at_once; begin < p.num_heads; begin += stride) {
    const int64_t head = begin + threadIdx.x / lanes;
    const bool mine = head < p.num_heads;
    const int64_t t = head / p.N, column = head % p.N * p.D + c;
    float x[kOctet] = {};
    float z[kOctet] = {};
    if (mine) {
      load_octet(static_cast<const Scalar*>(p.x) + t * p.x_stride + column, x);
      load_octet(static_cast<const Scalar*>(p.z) + t * p.z_stride + column, z);
    }
    float opening[kOctet];
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kOctet; ++j) {
      opening[j] = opening_of(p, z[j]);
      if (p.gate_first) {
        x[j] = __fmul_rn(x[j], opening[j]);
        opening[j] = 1.0f;
      }
      sum = fmaf(x[j], x[j], sum);
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (!mine) continue;
    const float scale = 1.0f / sqrtf(sum / static_cast<float>(p.D) + p.epsilon);
    const float* weight = p.weight + column % p.V;
#pragma unroll
    for (int j = 0; j < kOctet; ++j) x[j] = x[j] * scale * weight[j] * opening[j];
    store_octet(x, static_cast<Scalar*>(p.y) + t * p.y_stride + column);
  }
}

bool are_aligned(const GatedRmsNormArgs& args) {
  if (reinterpret_cast<uintptr_t>(args.weight.data) % 16 != 0) return false;
  for (const TensorView& rows : {args.x, args.z, TensorView(args.y)}) {
    if (reinterpret_cast<uintptr_t>(rows.data) % 16 != 0) return false;
    if (bytes_of(rows.dtype, rows.row_stride) % 16 != 0) return false;
  }
  return true;
}

}  // namespace

Status gated_rms_norm_cuda(CudaContext& context, const GatedRmsNormArgs& args) {
  const int64_t D = args.group_width;
  const int64_t N = args.x.shape[1] / D;
  const Params params{.x = args.x.data,
                      .z = args.z.data,
                      .weight = args.weight.as<float>(),
                      .y = args.y.data,
                      .x_stride = args.x.row_stride,
                      .z_stride = args.z.row_stride,
                      .y_stride = args.y.row_stride,
                      .num_heads = args.x.shape[0] * N,
                      .N = N,
                      .D = D,
                      .V = args.weight.shape[0],
                      .epsilon = args.epsilon,
                      .gate = args.gate,
                      .gate_first = args.gate_first};
  return with_scalar(args.x.dtype, [&](auto scalar) {
    using Scalar = typename decltype(scalar)::type;
    const char* const name = "gated_rms_norm";
    const bool aligned = are_aligned(args) && D % kOctet == 0;
    const int64_t lanes = D / kOctet;
    if (aligned && lanes <= kWarp && (lanes & (lanes - 1)) == 0) {
      return launch(context, name, gated_norm_octets_kernel<Scalar>,
                    grid_of(ceil_div(params.num_heads, kThreads / lanes)), kThreads, params);
    }
    if (aligned && lanes > kWarp && lanes <= kMostThreads * kMostHeld) {
      const int64_t threads = std::min<int64_t>(kMostThreads, ceil_div(lanes, kWarp) * kWarp);
      return launch(context, name,
                    lanes <= threads ? wide_gated_norm_kernel<Scalar, 1>
                                     : wide_gated_norm_kernel<Scalar, kMostHeld>,
                    grid_of(params.num_heads), static_cast<int>(threads), params);
    }
    return launch(context, name, gated_norm_kernel<Scalar>,
                  grid_of(ceil_div(params.num_heads, kWarps)), kThreads, params);
  });
}

}  // namespace heddle::ops
