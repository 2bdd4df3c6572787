// SPDX-License-Identifier: Apache-2.0
// residual += x (if there is one); y = x / rms(x) * weight, over groups of H columns.
// rms_norm_kernel: a block of up to 256 threads normalises a group, a thread has every blockDim-th
// octet of it. many_rows_kernel: a warp normalises a group, a lane has up to eight octets; the bits
// are the same. Bytes: 2 * H elements a group, 4 * H with a residual: bandwidth-bound.
// many_rows_kernel is used in 16 bits for aligned groups of H = 256 to 2,048, a multiple of 256, if
// there are at least 16 groups for each multiprocessor; rms_norm_kernel otherwise.
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/norm/norm_row.cuh"
#include "ops/norm/rms_norm.h"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  void* residual;  // residual that x is added to; null: none
  const float* weight;
  void* y;
  int64_t x_stride, residual_stride, y_stride;
  int64_t num_groups;  // T * G groups in all
  int64_t G, H;
  float epsilon;
  bool aligned;  // all rows, all groups and the weight are 16-byte aligned
};

constexpr int kMostThreads = 256;
constexpr int kRowWarps = 4;    // warps of a block of many_rows_kernel()
constexpr int kRowBlocks = 4;   // blocks of many_rows_kernel() on a multiprocessor
constexpr int kMostSlices = 8;  // most slices of 256 columns in a group

// A block normalises one group of H columns; a thread has the octets whose index is its own modulo
// the number of threads. Thread sums run over ascending columns and are joined in the order of
// block_sum(), which depends on H alone. Reads and writes 2 * H elements a group, 4 * H with a
// residual. If a thread has more than kHeld octets, x is read twice, the second time from the
// cache.
template <typename Scalar, int kHeld>
__global__ void __launch_bounds__(kMostThreads) rms_norm_kernel(const __grid_constant__ Params p) {
  __shared__ float scratch[kWarp];
  const auto load = [&](const Scalar* row, int64_t h, float(&values)[kOctet]) {
    if (p.aligned && p.H - h >= kOctet) {
      load_octet(row + h, values);
    } else {
      load_elements(row + h, p.H - h, values);
    }
  };
  const auto store = [&](const float(&values)[kOctet], int64_t h, Scalar* row) {
    if (p.aligned && p.H - h >= kOctet) {
      store_octet(values, row + h);
    } else {
      store_elements(values, p.H - h, row + h);
    }
  };
  const int64_t step = int64_t{blockDim.x} * kOctet;
  const auto place = [&](int i) { return threadIdx.x * int64_t{kOctet} + i * step; };
  const auto load_weights = [&](int64_t h, float(&weights)[kOctet]) {
    if (p.aligned && p.H - h >= kOctet) {
      load_octet(p.weight + h, weights);
    } else {
      load_elements(p.weight + h, p.H - h, weights);
    }
  };
  float held_weights[kHeld][kOctet];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (place(i) < p.H) load_weights(place(i), held_weights[i]);
  }
  wait_for_inputs();
  for (int64_t group = blockIdx.x; group < p.num_groups; group += gridDim.x) {
    const int64_t t = group / p.G;
    const int64_t column = group % p.G * p.H;
    const auto* x = static_cast<const Scalar*>(p.x) + t * p.x_stride + column;
    auto* y = static_cast<Scalar*>(p.y) + t * p.y_stride + column;
    Scalar* residual = nullptr;
    if (p.residual != nullptr) {
      residual = static_cast<Scalar*>(p.residual) + t * p.residual_stride + column;
    }
    float held[kHeld][kOctet];
    float sum = 0;
    const auto take = [&](int64_t h, float(&values)[kOctet]) {
      load(x, h, values);
      if (residual != nullptr) {
        float before[kOctet];
        load(residual, h, before);
        add_to_residual<Scalar>(before, values);
        store(values, h, residual);
      }
      add_squares(values, sum);
    };
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (place(i) < p.H) take(place(i), held[i]);
    }
    for (int i = kHeld; place(i) < p.H; ++i) {
      float values[kOctet];
      take(place(i), values);
    }
    sum = block_sum(sum, scratch);
    const float scale = norm_scale(sum, p.H, p.epsilon);
    const auto give = [&](int64_t h, const float(&values)[kOctet], const float(&weights)[kOctet]) {
      float normed[kOctet];
      normalise(values, scale, weights, normed);
      store(normed, h, y);
    };
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (place(i) < p.H) give(place(i), held[i], held_weights[i]);
    }
    for (int i = kHeld; place(i) < p.H; ++i) {  // each thread reads what it wrote itself
      float values[kOctet];
      float weights[kOctet];
      load(residual != nullptr ? residual : x, place(i), values);
      load_weights(place(i), weights);
      give(place(i), values, weights);
    }
  }
}

// An octet of a row in its stored dtype.
template <typename Scalar>
struct alignas(16) StoredOctet {
  Scalar numbers[kOctet];

  __device__ void load(const Scalar* from) { *this = *reinterpret_cast<const StoredOctet*>(from); }

  __device__ void unpack(float (&values)[kOctet]) const { load_octet(numbers, values); }
};

// For many aligned groups of up to kMostSlices slices of 256 columns of 16-bit numbers. A slice is
// what one warp of rms_norm_kernel() has; here one warp normalises the whole group, so that no warp
// waits for another. The bits are those of rms_norm_kernel(). Predicted for an H200 with 8,192 rows
// of 2,048 and a residual 35 us, of which the bytes take 32. Measured: 37.5; with one block per row
// that loads the next row ahead 40.6.
template <typename Scalar>
__global__ void __launch_bounds__(kRowWarps* kWarp, kRowBlocks)
    many_rows_kernel(const __grid_constant__ Params p) {
  constexpr int kSlice = kWarp * kOctet;
  __shared__ alignas(16) float weights[kMostSlices * kSlice];
  for (int h = static_cast<int>(threadIdx.x); h < p.H; h += kRowWarps * kWarp) {
    weights[h] = p.weight[h];
  }
  __syncthreads();
  wait_for_inputs();
  const int num_slices = static_cast<int>(p.H) / kSlice;
  const int column = static_cast<int>(threadIdx.x) % kWarp * kOctet;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int64_t group = int64_t{blockIdx.x} * kRowWarps + warp; group < p.num_groups;
       group += int64_t{gridDim.x} * kRowWarps) {
    const auto place = [&](int64_t stride) {
      return group / p.G * stride + group % p.G * p.H + column;
    };
    const auto* x = static_cast<const Scalar*>(p.x) + place(p.x_stride);
    auto* y = static_cast<Scalar*>(p.y) + place(p.y_stride);
    Scalar* residual = nullptr;
    if (p.residual != nullptr) {
      residual = static_cast<Scalar*>(p.residual) + place(p.residual_stride);
    }
    StoredOctet<Scalar> own[kMostSlices], before[kMostSlices];
#pragma unroll
    for (int i = 0; i < kMostSlices; ++i) {
      if (i >= num_slices) break;
      own[i].load(x + i * kSlice);
      if (residual != nullptr) before[i].load(residual + i * kSlice);
    }
    float sums[kMostSlices] = {};
#pragma unroll
    for (int i = 0; i < kMostSlices; ++i) {
      if (i >= num_slices) break;
      float values[kOctet];
      own[i].unpack(values);
      if (residual != nullptr) {
        float old[kOctet];
        before[i].unpack(old);
        add_to_residual<Scalar>(old, values);
        store_octet(values, own[i].numbers);
        store_octet(values, residual + i * kSlice);
      }
      add_squares(values, sums[i]);
    }
#pragma unroll
    for (float& sum : sums) sum = warp_sum(sum);
    static_assert(kMostSlices == 8);  // the sums below are added in the order of block_sum()
    const float sum =
        ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    const float scale = norm_scale(sum, p.H, p.epsilon);
#pragma unroll
    for (int i = 0; i < kMostSlices; ++i) {
      if (i >= num_slices) break;
      float values[kOctet], own_weights[kOctet], normed[kOctet];
      own[i].unpack(values);
      load_octet(weights + i * kSlice + column, own_weights);
      normalise(values, scale, own_weights, normed);
      store_octet(normed, y + i * kSlice);
    }
  }
}

bool is_aligned(const TensorView& x, int64_t H) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
         bytes_of(x.dtype, x.row_stride) % 16 == 0 && bytes_of(x.dtype, H) % 16 == 0;
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
                      .epsilon = args.epsilon,
                      .aligned = reinterpret_cast<uintptr_t>(args.weight.data) % 16 == 0 &&
                                 is_aligned(args.x, H) && is_aligned(args.y, H) &&
                                 (args.residual.data == nullptr || is_aligned(args.residual, H))};
  const auto threads = static_cast<unsigned>(
      std::min<int64_t>(kMostThreads, ceil_div(ceil_div(H, kOctet), kWarp) * kWarp));
  return with_scalar(args.x.dtype, [&](auto scalar) {
    using Scalar = typename decltype(scalar)::type;
    const bool one_each = H <= int64_t{threads} * kOctet;
    if constexpr (sizeof(Scalar) == 2) {
      const int64_t blocks = kRowBlocks * context.gpu.properties().num_multiprocessors;
      const bool sliced = H % (kWarp * kOctet) == 0 && H <= kMostSlices * kWarp * kOctet;
      if (params.aligned && sliced && params.num_groups >= blocks * kRowWarps) {
        return launch(context, "rms_norm", many_rows_kernel<Scalar>, grid_of(blocks),
                      kRowWarps * kWarp, params);
      }
    }
    return launch(context, "rms_norm",
                  one_each ? rms_norm_kernel<Scalar, 1> : rms_norm_kernel<Scalar, 4>,
                  grid_of(params.num_groups), threads, params);
  });
}

}  // namespace heddle::ops
