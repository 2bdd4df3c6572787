// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/sm90/bulk_copy.cuh"
#include "ops/cuda/sm90/mbarrier.cuh"
#include "ops/cuda/sm90/tensor_map.h"
#include "ops/cuda/sm90/tiles.cuh"
#include "ops/cuda/sm90/wgmma.cuh"
#include "ops/moe/device_scratch.h"
#include "ops/moe/expert_activation.cuh"
#include "ops/moe/routed_moe_sm90.h"

namespace heddle::ops {

namespace {

using sm90::group_barrier;
using sm90::kTileBytes;
using sm90::kWarpgroup;
using sm90::swizzled;

constexpr int kMostRows = static_cast<int>(MoeDeviceScratch::kHopperTileRows);
constexpr int kDepth = 64;  // of a stage along K
constexpr int kStages = 4;
constexpr int kWeightTiles = 4;  // of 64 rows of the weight: two for each computing warpgroup
constexpr int kBoxRows = 32;     // tokens that are loaded at once
constexpr int kThreads = 2 * kWarpgroup + kWarp;

static_assert(kMostRows == 128);

// --- gather ---

struct GatherParams {
  const uint4* x;
  uint4* sorted;
  const int32_t* row_pair;
  int64_t x_stride;  // in octets
  int64_t num_rows, octets, A;
};

// sorted[r] = x[token of row r], eight numbers a thread. Moves 4 * R * H bytes.
__global__ void __launch_bounds__(256) gather_kernel(const __grid_constant__ GatherParams p) {
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  const int64_t token = p.row_pair[row] / p.A;
  for (int64_t i = threadIdx.x; i < p.octets; i += blockDim.x) {
    p.sorted[row * p.octets + i] = p.x[token * p.x_stride + i];
  }
}

// --- products ---

struct Params {
  CUtensorMap weights;  // boxes of 64 rows of all experts' weights, one after the other
  CUtensorMap rows;     // boxes of 32 rows, sorted by expert
  const ExpertTile* tiles;
  const int32_t* row_pair;  // down: where a row's result goes; up: null, it stays where it is
  const float* bias;        // null: none
  CudaBf16* y;
  int32_t K;
  int32_t N;            // columns of y: I or H
  int32_t expert_rows;  // of the weight: 2 * I or H
  float limit, alpha;   // of the activation
};

struct Stage {
  uint8_t weights[kWeightTiles][kTileBytes];
  uint8_t rows[kMostRows * 128];
};

struct Shared {
  Stage stages[kStages];
  uint8_t y[2][kMostRows * 128];  // of a warpgroup: 64 columns of all rows
  sm90::Barrier full[kStages];
  sm90::Barrier empty[kStages];
};

// The weight row at which tile `i` of a block begins, among its expert's. Up: the gate's 64 rows
// and up's for the first warpgroup, then for the second; down: 256 rows in order.
template <bool kUp>
__device__ inline int weight_row(const Params& p, int block, int i) {
  if constexpr (kUp) return block * 128 + i / 2 * 64 + i % 2 * p.N;
  return block * 256 + i * 64;
}

// One warpgroup's part of a tile with up to kRows rows: two products of 64 weight rows.
template <bool kUp, int kRows>
__device__ inline void compute(const Params& p, Shared& s, const ExpertTile& tile, int block,
                               int group, int num_steps) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  float first[kRows / 2];
  float second[kRows / 2];
  for (int step = 0; step < num_steps; ++step) {
    const int i = step % kStages;
    Stage& stage = s.stages[i];
    sm90::wait(s.full[i], step / kStages % 2);
    const uint64_t a = sm90::rows_along_k(stage.weights[2 * group], 0);
    const uint64_t b = sm90::rows_along_k(stage.weights[2 * group + 1], 0);
    const uint64_t x = sm90::rows_along_k(stage.rows, 0);
    sm90::products_fence();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      const bool accumulate = step > 0 || k > 0;
      sm90::product(first, sm90::further_along_k(a, k), sm90::further_along_k(x, k), accumulate);
      sm90::product(second, sm90::further_along_k(b, k), sm90::further_along_k(x, k), accumulate);
    }
    sm90::products_commit();
    sm90::products_wait<1>();  // those of the stage before
    if (step > 0 && thread == 0) sm90::arrive(s.empty[(step - 1) % kStages]);
  }
  sm90::products_wait<0>();
  sm90::settle(first);
  sm90::settle(second);

  // Accumulators are [weight row, token]; rows of y are tokens.
  const int64_t expert = tile.expert;
  const auto bias_of = [&](int product, int half) {
    if (p.bias == nullptr) return 0.0f;
    const int row =
        weight_row<kUp>(p, block, 2 * group + product) + 16 * warp + lane / 4 + 8 * half;
    return p.bias[expert * p.expert_rows + row];
  };
  const float first_bias[2] = {bias_of(0, 0), bias_of(0, 1)};
  const float second_bias[2] = {bias_of(1, 0), bias_of(1, 1)};
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) {
    first[i] += first_bias[i / 2 % 2];
    second[i] += second_bias[i / 2 % 2];
    if constexpr (kUp) first[i] = activated(first[i], second[i], p.limit, p.alpha);
  }
  const auto write = [&](const float(&values)[kRows / 2], int column) {
    group_barrier(group);  // the tile has been read
#pragma unroll
    for (int two = 0; two < kRows / 16; ++two) {
      const uint32_t four[4] = {sm90::pack(values[8 * two], values[8 * two + 1]),
                                sm90::pack(values[8 * two + 2], values[8 * two + 3]),
                                sm90::pack(values[8 * two + 4], values[8 * two + 5]),
                                sm90::pack(values[8 * two + 6], values[8 * two + 7])};
      const int token = 8 * (2 * two + lane / 16) + lane % 8;
      sm90::store_transposed(swizzled(s.y[group], token, 16 * warp + lane / 8 % 2 * 8), four);
    }
    group_barrier(group);
    for (int at = thread; at < tile.num_rows * 8; at += kWarpgroup) {
      const int64_t row = tile.first_row + at / 8;
      const int64_t to = p.row_pair != nullptr ? p.row_pair[row] : row;
      *reinterpret_cast<uint4*>(p.y + to * p.N + column + at % 8 * 8) =
          *reinterpret_cast<const uint4*>(swizzled(s.y[group], at / 8, at % 8 * 8));
    }
  };
  if constexpr (kUp) {
    write(first, block * 128 + group * 64);
  } else {
    write(first, weight_row<kUp>(p, block, 2 * group));
    write(second, weight_row<kUp>(p, block, 2 * group + 1));
  }
}

// A block multiplies 256 weight rows of an expert with the rows of one of its tiles; blocks that
// follow each other take the expert's tiles, then other rows of the weight. One warp loads ahead,
// two warpgroups multiply. Per step of 64 along K: 32 KiB of weights and 4 KiB for each 32 rows in,
// 2 * 256 * 64 flops a row.
template <bool kUp>
__global__ void __launch_bounds__(kThreads, 1) experts_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  extern __shared__ __align__(1024) uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  const ExpertTile tile = p.tiles[blockIdx.x];
  if (tile.num_rows == 0) return;
  const int block = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int num_steps = p.K / kDepth;
  const int num_boxes = static_cast<int>(ceil_div(tile.num_rows, kBoxRows));
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      sm90::init(s.full[i], 1);
      sm90::init(s.empty[i], 2);
    }
    sm90::publish_barriers();
  }
  __syncthreads();

  if (thread >= 2 * kWarpgroup) {
    if (thread != 2 * kWarpgroup) return;
    const int expert_row = tile.expert * p.expert_rows;
    for (int step = 0; step < num_steps; ++step) {
      const int i = step % kStages;
      Stage& stage = s.stages[i];
      sm90::wait(s.empty[i], (step / kStages + 1) % 2);
      sm90::arrive_expecting(
          s.full[i], kWeightTiles * kTileBytes + static_cast<uint32_t>(num_boxes) * kBoxRows * 128);
      const int column = step * kDepth;
      for (int w = 0; w < kWeightTiles; ++w) {
        sm90::copy_box(stage.weights[w], p.weights, column,
                       expert_row + weight_row<kUp>(p, block, w), s.full[i]);
      }
      for (int box = 0; box < num_boxes; ++box) {
        sm90::copy_box(stage.rows + box * kBoxRows * 128, p.rows, column,
                       tile.first_row + box * kBoxRows, s.full[i]);
      }
    }
    return;
  }
  const int group = thread / kWarpgroup;
  switch (num_boxes) {
    case 1:
      return compute<kUp, 32>(p, s, tile, block, group, num_steps);
    case 2:
      return compute<kUp, 64>(p, s, tile, block, group, num_steps);
    case 3:
      return compute<kUp, 96>(p, s, tile, block, group, num_steps);
    default:
      return compute<kUp, 128>(p, s, tile, block, group, num_steps);
  }
}

// All experts' weights as one matrix, [E * rows, K].
TensorView stacked(const TensorView& weight) {
  return {weight.data, weight.dtype, Shape{weight.shape[0] * weight.shape[1], weight.shape[2]}};
}

template <bool kUp>
Status launch_experts(CudaContext& context, const Params& params, int64_t num_tiles,
                      int64_t blocks) {
  HEDDLE_RETURN_IF_ERROR(allow_shared(experts_kernel<kUp>, sizeof(Shared)));
  const dim3 grid(static_cast<unsigned>(num_tiles), static_cast<unsigned>(blocks));
  return launch(context, kUp ? "moe_up_tiles" : "moe_down_tiles", experts_kernel<kUp>, grid,
                kThreads, params, sizeof(Shared));
}

}  // namespace

bool routed_moe_is_tiled(const CudaContext& context, const RoutedMoeShape& shape) {
  return context.gpu.properties().major == 9 && !context.exact && shape.x == DType::kBf16 &&
         shape.weight == DType::kBf16 && shape.H % 256 == 0 && shape.I % 128 == 0;
}

Status run_tiled_experts(CudaContext& context, const TiledExpertsArgs& args) {
  const RoutedMoeArgs& moe = *args.moe;
  const int64_t H = moe.w2.shape[1];
  const int64_t I = moe.w2.shape[2];
  const GatherParams gather{.x = static_cast<const uint4*>(args.x.data),
                            .sorted = static_cast<uint4*>(args.sorted),
                            .row_pair = args.row_pair,
                            .x_stride = args.x.row_stride / 8,
                            .num_rows = args.num_rows,
                            .octets = H / 8,
                            .A = moe.experts_per_token};
  HEDDLE_RETURN_IF_ERROR(
      launch(context, "moe_gather", gather_kernel, grid_of(args.num_rows), 256, gather));

  Params up{.tiles = args.tiles,
            .row_pair = nullptr,
            .bias = moe.w13_bias.as<float>(),
            .y = static_cast<CudaBf16*>(args.hidden),
            .K = static_cast<int32_t>(H),
            .N = static_cast<int32_t>(I),
            .expert_rows = static_cast<int32_t>(2 * I),
            .limit = moe.activation.limit,
            .alpha = moe.activation.alpha};
  HEDDLE_RETURN_IF_ERROR(sm90::map_boxes(stacked(moe.w13), 64, up.weights));
  HEDDLE_RETURN_IF_ERROR(
      sm90::map_boxes({args.sorted, DType::kBf16, Shape{args.num_rows, H}}, kBoxRows, up.rows));
  HEDDLE_RETURN_IF_ERROR(launch_experts<true>(context, up, args.num_tiles, I / 128));

  Params down = up;
  down.row_pair = args.row_pair;
  down.bias = moe.w2_bias.as<float>();
  down.y = static_cast<CudaBf16*>(args.down);
  down.K = static_cast<int32_t>(I);
  down.N = static_cast<int32_t>(H);
  down.expert_rows = static_cast<int32_t>(H);
  HEDDLE_RETURN_IF_ERROR(sm90::map_boxes(stacked(moe.w2), 64, down.weights));
  HEDDLE_RETURN_IF_ERROR(
      sm90::map_boxes({args.hidden, DType::kBf16, Shape{args.num_rows, I}}, kBoxRows, down.rows));
  return launch_experts<false>(context, down, args.num_tiles, H / 256);
}

}  // namespace heddle::ops
