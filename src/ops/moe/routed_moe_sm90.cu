// SPDX-License-Identifier: Apache-2.0
// hidden = f(W13_e x) and down = W2_e hidden for tiles of up to 64 or 192 rows of an expert
// (wgmma); f is silu(gate) * up, with or without bounds, gelu(gate) * up or relu(gate)^2. One block
// per multiprocessor computes items: 256 weight rows of an expert and one of its tiles. One
// warpgroup loads stages of 64 along K; each of two others computes 128 weight rows. A thread has
// accumulators of [weight row, token], which are transposed when they are stored. Flops: 6 * R * I
// * H, without a gate 4. Bytes: weights once a tile from memory, rows from the cache. Used on
// Hopper in fast mode from 32 tokens on: bf16, H and I multiples of 64 from 128 on, weights dense
// and 16-byte aligned.
#include <algorithm>
#include <limits>

#include <cuda.h>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/sm90/bulk_copy.cuh"
#include "ops/cuda/sm90/mbarrier.cuh"
#include "ops/cuda/sm90/tensor_map.h"
#include "ops/cuda/sm90/tiles.cuh"
#include "ops/cuda/sm90/wgmma.cuh"
#include "ops/cuda/warp_matrix.cuh"
#include "ops/moe/device_scratch.h"
#include "ops/moe/routed_moe_sm90.h"

namespace heddle::ops {

namespace {

using sm90::group_barrier;
using sm90::kTileBytes;
using sm90::kWarpgroup;
using sm90::swizzled;

constexpr int kDepth = 64;       // depth of a stage along K
constexpr int kWeightTiles = 4;  // tiles of 64 weight rows: two per computing warpgroup
constexpr int kBoxRows = 32;     // tokens that are loaded and multiplied together
constexpr int kThreads = 3 * kWarpgroup;
// Registers a thread; 168 on average.
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

// Which product a kernel computes: the second, or the first with one of the activations.
enum class Product : uint8_t { kSwiglu, kGeglu, kSquaredRelu, kDown };

template <Product kProduct>
constexpr bool kIsUp = kProduct != Product::kDown;

// Whether a result needs a row of the gate and one of the up projection.
template <Product kProduct>
constexpr bool kTakesPairs = kProduct == Product::kSwiglu || kProduct == Product::kGeglu;

struct Params {
  CUtensorMap weights;  // boxes of 64 rows of all experts' weights, one expert after the other
  CUtensorMap rows;     // second product: boxes of 32 rows of `hidden`
  const CudaBf16* x;    // first product: [T, K], indexed by token
  int64_t x_stride;
  const ExpertTile* tiles;
  int32_t* num_taken;       // items claimed in addition to each block's first
  const int32_t* row_pair;  // up: token of each row; down: index of each row's result
  const float* bias;        // null: no bias
  CudaBf16* y;
  int32_t A;
  int32_t num_tiles;
  int32_t blocks;  // blocks of 256 weight rows per tile; the last one may be partial
  int32_t K;
  int32_t N;                      // columns of y: I or H
  int32_t expert_rows;            // weight rows per expert: 2 * I, I without a gate, or H
  float limit, alpha, up_offset;  // activation parameters: infinity, 1, 0 for silu(gate) * up
};

// 256 weight rows of an expert, and one of its tiles. Rows of the last block beyond the expert
// belong to the next expert or are zero; their results are not written. The items of a tile are
// consecutive, followed by those of the expert's next tile, so that shared data is still in the
// cache.
struct Item {
  ExpertTile tile;
  int block;

  // Clipped to the existing rows.
  __device__ static Item of(const Params& p, int index) {
    const int tile = index / p.blocks;
    if (tile >= p.num_tiles) return {};
    return {.tile = p.tiles[tile], .block = index % p.blocks};
  }

  [[nodiscard]] __device__ int num_boxes() const {
    return (tile.num_rows + kBoxRows - 1) / kBoxRows;
  }
};

// Shared memory for tiles of up to kMostRows rows. The rest holds stages and the output buffer.
template <int kMostRows>
struct Shared {
  static constexpr int kStages = kMostRows == 64 ? 5 : 3;

  struct Stage {
    uint8_t weights[kWeightTiles][kTileBytes];
    uint8_t rows[kMostRows * 128];
  };

  Stage stages[kStages];
  uint8_t y[2][kMostRows * 128];  // per warpgroup: 64 columns of all rows
  int32_t places[2][kMostRows];   // rows of y that the results are written to
  Item items[2];                  // current and next item
  int next_index[2];
  sm90::Barrier full[kStages];
  sm90::Barrier empty[kStages];
  sm90::Barrier item_full[2];
  sm90::Barrier item_empty[2];
};

// The next stage of a warpgroup, and the barrier parity to wait for.
template <int kStages>
struct Turn {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// First weight row of tile `i` of a block, within its expert. For pairs, the first warpgroup has 64
// rows of the gate and 64 of up, then the second; otherwise 256 rows in order.
template <Product kProduct>
__device__ inline int weight_row(const Params& p, int block, int i) {
  if constexpr (kTakesPairs<kProduct>) return block * 128 + i / 2 * 64 + i % 2 * p.N;
  return block * 256 + i * 64;
}

// Signals the barrier when the copies that this thread started have arrived.
__device__ inline void arrive_after_copies(sm90::Barrier& barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(sm90::shared_address(&barrier))
      : "memory");
}

// The tokens of a tile's rows. Warp w loads rows 16 * i + 4 * w + j, for i < kMostRows / 16 and j <
// 4; lane l has the tokens of the rows for which 4 * i + j is l or l + 32.
template <int kMostRows>
struct TileTokens {
  static constexpr int kPlaces = kMostRows / 4;
  int32_t tokens[(kPlaces + kWarp - 1) / kWarp];

  __device__ void load(const Params& p, const ExpertTile& tile, int warp, int lane) {
#pragma unroll
    for (int n = 0; n < (kPlaces + kWarp - 1) / kWarp; ++n) {
      const int place = n * kWarp + lane;
      const int row = place / 4 * 16 + warp * 4 + place % 4;
      tokens[n] = row < tile.num_rows ? p.row_pair[tile.first_row + row] / p.A : 0;
    }
  }

  // The token of row 16 * i + 4 * w + l / 8.
  [[nodiscard]] __device__ int32_t of(int i, int lane) const {
    return __shfl_sync(0xffffffffu, tokens[i / 8], i % 8 * 4 + lane / 8);
  }
};

// A warpgroup loads the stages of the block's items in order and claims the next item meanwhile.
// The copy engine loads weights and the consecutive rows of `hidden`; threads gather rows of x, 16
// bytes each.
template <Product kProduct, int kMostRows>
__device__ inline void load_items(const Params& p, Shared<kMostRows>& s) {
  constexpr bool kUp = kIsUp<kProduct>;
  using S = Shared<kMostRows>;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int warp = thread / kWarp, lane = thread % kWarp;
  if (!kUp && thread != 0) return;
  const int num_steps = p.K / kDepth;
  const int octet = lane % 8, own_row = warp * 4 + lane / 8;
  const auto row_bytes_of_x = static_cast<uint32_t>(p.x_stride * sizeof(CudaBf16));
  Item item = Item::of(p, static_cast<int>(blockIdx.x));
  TileTokens<kMostRows> next_rows;
  if constexpr (kUp) next_rows.load(p, item.tile, warp, lane);
  Turn<S::kStages> turn{.parity = 1};
  Turn<2> place{.parity = 1};
  for (;; place.advance()) {
    if (thread == 0) {
      sm90::wait(s.item_empty[place.stage], place.parity);
      s.items[place.stage] = item;
      sm90::arrive(s.item_full[place.stage]);
    }
    if (item.tile.num_rows == 0) return;
    int next_index = 0;
    Item next;
    const TileTokens<kMostRows> rows = next_rows;
    const int expert_row = item.tile.expert * p.expert_rows;
    const int num_boxes = item.num_boxes();
    for (int step = 0; step < num_steps; ++step) {
      typename S::Stage& stage = s.stages[turn.stage];
      sm90::Barrier& full = s.full[turn.stage];
      sm90::wait(s.empty[turn.stage], turn.parity);
      const int column = step * kDepth;
      if (thread == 0) {
        const int row_bytes = kUp ? 0 : num_boxes * kBoxRows * 128;
        sm90::arrive_expecting(full, kWeightTiles * kTileBytes + static_cast<uint32_t>(row_bytes));
        for (int w = 0; w < kWeightTiles; ++w) {
          sm90::copy_box(stage.weights[w], p.weights, column,
                         expert_row + weight_row<kProduct>(p, item.block, w), full);
        }
        for (int box = 0; !kUp && box < num_boxes; ++box) {
          sm90::copy_box(stage.rows + box * kBoxRows * 128, p.rows, column,
                         item.tile.first_row + box * kBoxRows, full);
        }
        if (step == 0) next_index = static_cast<int>(gridDim.x) + atomicAdd(p.num_taken, 1);
      }
      if constexpr (kUp) {
        __syncwarp();
        const auto* from = reinterpret_cast<const std::byte*>(p.x + column + octet * 8);
        uint8_t* to = swizzled(stage.rows, own_row, octet * 8);
#pragma unroll
        for (int i = 0; i < kMostRows / 16; ++i) {
          if (i * 16 >= num_boxes * kBoxRows) break;
          const auto token = static_cast<uint32_t>(rows.of(i, lane));
          copy_async(to + i * 16 * 128, from + uint64_t{token} * row_bytes_of_x,
                     i * 16 + own_row < item.tile.num_rows);
        }
        arrive_after_copies(full);
      }
      if (step == 1) {
        if constexpr (kUp) {
          if (thread == 0) s.next_index[place.stage] = next_index;
          group_barrier(2);
          next_index = s.next_index[place.stage];
        }
        next = Item::of(p, next_index);
        if constexpr (kUp) next_rows.load(p, next.tile, warp, lane);
      }
      turn.advance();
    }
    item = next;
  }
}

// The smaller of two numbers, or NaN if one is NaN.
__device__ inline float smaller(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ inline float larger(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// As activated() of expert_activation.cuh, with approximate functions, error about 2^-21, because
// the result is rounded to bf16. The choice of the activation is branchless, because the code is
// unrolled for every number of a thread: code that exceeds the instruction cache took longer than
// the products.
template <Product kProduct>
__device__ inline float quickly_activated(const Params& p, float gate, float up) {
  if constexpr (kProduct == Product::kGeglu) {
    const float cubic = gate + 0.044715f * gate * gate * gate;
    return up * __fdividef(gate, 1.0f + __expf(-1.59576912160573071f * cubic));
  } else {
    const float g = smaller(gate, p.limit);
    const float u = larger(smaller(up, p.limit), -p.limit);
    return (u + p.up_offset) * __fdividef(g, 1.0f + __expf(-p.alpha * g));
  }
}

__device__ inline float squared_relu(float x) {
  const float positive = larger(x, 0.0f);
  return positive * positive;
}

// One warpgroup's part of an item with up to kRows rows: two products of 64 weight rows.
template <Product kProduct, int kRows, int kMostRows>
__device__ inline void compute(const Params& p, Shared<kMostRows>& s, const Item& item, int group,
                               Turn<Shared<kMostRows>::kStages>& turn) {
  using S = Shared<kMostRows>;
  constexpr bool kUp = kIsUp<kProduct>;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const int num_steps = p.K / kDepth;
  constexpr int kEach = (kRows + kWarpgroup - 1) / kWarpgroup;
  int32_t places[kEach] = {};
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const int row = n * kWarpgroup + thread;
    if (!kUp && row < item.tile.num_rows) places[n] = p.row_pair[item.tile.first_row + row];
  }
  // Initialised with zeros instead of a predicate, which would keep the registers of all kRows in
  // use.
  float first[kRows / 2] = {};
  float second[kRows / 2] = {};
  sm90::settle(first);
  sm90::settle(second);
  int before = 0;  // stage of the previous step
  for (int step = 0; step < num_steps; ++step) {
    typename S::Stage& stage = s.stages[turn.stage];
    sm90::wait(s.full[turn.stage], turn.parity);
    // Makes rows that threads have written visible to wgmma.
    if constexpr (kUp) sm90::fence_async_proxy();
    const uint64_t a = sm90::rows_along_k(stage.weights[2 * group], 0);
    const uint64_t b = sm90::rows_along_k(stage.weights[2 * group + 1], 0);
    const uint64_t x = sm90::rows_along_k(stage.rows, 0);
    sm90::products_fence();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      sm90::product(first, sm90::further_along_k(a, k), sm90::further_along_k(x, k), true);
      sm90::product(second, sm90::further_along_k(b, k), sm90::further_along_k(x, k), true);
    }
    sm90::products_commit();
    sm90::products_wait<1>();  // waits for the products of the previous stage
    if (step > 0 && thread == 0) sm90::arrive(s.empty[before]);
    before = turn.stage;
    turn.advance();
  }
  sm90::products_wait<0>();
  if (thread == 0) sm90::arrive(s.empty[before]);
  sm90::settle(first);
  sm90::settle(second);

  // Accumulators are [weight row, token]; rows of y are tokens.
  const int64_t expert = item.tile.expert;
  const auto bias_of = [&](int product, int half) {
    if (p.bias == nullptr) return 0.0f;
    const int row =
        weight_row<kProduct>(p, item.block, 2 * group + product) + 16 * warp + lane / 4 + 8 * half;
    return p.bias[expert * p.expert_rows + min(row, p.expert_rows - 1)];
  };
  const float first_bias[2] = {bias_of(0, 0), bias_of(0, 1)};
  const float second_bias[2] = {bias_of(1, 0), bias_of(1, 1)};
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) {
    first[i] += first_bias[i / 2 % 2];
    second[i] += second_bias[i / 2 % 2];
    if constexpr (kTakesPairs<kProduct>) {
      first[i] = quickly_activated<kProduct>(p, first[i], second[i]);
    } else if constexpr (kUp) {
      first[i] = squared_relu(first[i]);
      second[i] = squared_relu(second[i]);
    }
  }
  group_barrier(group);  // the previous item's destinations have been read
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    const int row = n * kWarpgroup + thread;
    if (row < kRows) s.places[group][row] = kUp ? item.tile.first_row + row : places[n];
  }
  const auto write = [&](const float(&values)[kRows / 2], int column) {
    group_barrier(group);  // the output tile has been read
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
#pragma unroll 4
    for (int at = thread; at < (column < p.N ? item.tile.num_rows * 8 : 0); at += kWarpgroup) {
      const int64_t to = s.places[group][at / 8];
      *reinterpret_cast<uint4*>(p.y + to * p.N + column + at % 8 * 8) =
          *reinterpret_cast<const uint4*>(swizzled(s.y[group], at / 8, at % 8 * 8));
    }
  };
  if constexpr (kTakesPairs<kProduct>) {
    write(first, item.block * 128 + group * 64);
  } else {
    write(first, weight_row<kProduct>(p, item.block, 2 * group));
    write(second, weight_row<kProduct>(p, item.block, 2 * group + 1));
  }
}

// Padding rows cost products: uses the smallest number of rows that the item's tile fits into.
template <Product kProduct, int kMostRows>
__device__ inline void compute_item(const Params& p, Shared<kMostRows>& s, const Item& item,
                                    int group, Turn<Shared<kMostRows>::kStages>& turn) {
  const int num_boxes = item.num_boxes();
  if constexpr (kMostRows == 64) {
    if (num_boxes == 1) return compute<kProduct, 32>(p, s, item, group, turn);
    return compute<kProduct, 64>(p, s, item, group, turn);
  } else {
    static_assert(kMostRows == 192);
    if (num_boxes <= 2) return compute<kProduct, 64>(p, s, item, group, turn);
    if (num_boxes <= 4) return compute<kProduct, 128>(p, s, item, group, turn);
    if (num_boxes == 5) return compute<kProduct, 160>(p, s, item, group, turn);
    return compute<kProduct, 192>(p, s, item, group, turn);
  }
}

// A block on each multiprocessor computes item after item: it multiplies 256 weight rows of an
// expert with the rows of one of its tiles. One warpgroup loads, continuing into the next item; two
// multiply. Each step of 64 along K loads 32 KiB of weights and 4 KiB per 32 rows, and does 2 * 256
// * 64 flops a row. Weights come from memory once, rows from the cache once per item: with 160 rows
// of an expert, 5 bytes of rows for every 8 of weights. 192 rows are the most that the accumulators
// allow; the typical expert of a long step then has one tile.
template <Product kProduct, int kMostRows>
__global__ void __launch_bounds__(kThreads, 1) experts_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  extern __shared__ __align__(1024) uint8_t raw[];
  using S = Shared<kMostRows>;
  S& s = *reinterpret_cast<S*>(raw);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      sm90::init(s.full[i], kIsUp<kProduct> ? 1 + kWarpgroup : 1);
      sm90::init(s.empty[i], 2);
    }
    for (int i = 0; i < 2; ++i) {
      sm90::init(s.item_full[i], 1);
      sm90::init(s.item_empty[i], 2 * kWarpgroup);
    }
    sm90::publish_barriers();
  }
  __syncthreads();
  if (thread >= 2 * kWarpgroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    load_items<kProduct>(p, s);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    const int group = thread / kWarpgroup;
    Turn<S::kStages> turn;
    for (Turn<2> place;; place.advance()) {
      sm90::wait(s.item_full[place.stage], place.parity);
      const Item item = s.items[place.stage];
      if (item.tile.num_rows == 0) return;
      sm90::arrive(s.item_empty[place.stage]);
      compute_item<kProduct>(p, s, item, group, turn);
    }
  }
}

// All experts' weights as one matrix, [E * rows, K].
TensorView stacked(const TensorView& weight) {
  return {weight.data, weight.dtype, Shape{weight.shape[0] * weight.shape[1], weight.shape[2]}};
}

template <Product kProduct, int kMostRows>
Status launch_experts(CudaContext& context, const Params& params) {
  using S = Shared<kMostRows>;
  HEDDLE_RETURN_IF_ERROR(allow_shared(experts_kernel<kProduct, kMostRows>, sizeof(S)));
  const int64_t items = int64_t{params.num_tiles} * params.blocks;
  const int64_t processors = context.gpu.properties().num_multiprocessors;
  return launch(context, kIsUp<kProduct> ? "moe_up_tiles" : "moe_down_tiles",
                experts_kernel<kProduct, kMostRows>, grid_of(std::min(items, processors)), kThreads,
                params, sizeof(S));
}

template <int kMostRows>
Status launch_up(CudaContext& context, ExpertForm form, const Params& up) {
  if (form == ExpertForm::kSquaredRelu) {
    return launch_experts<Product::kSquaredRelu, kMostRows>(context, up);
  }
  if (form == ExpertForm::kGeglu) return launch_experts<Product::kGeglu, kMostRows>(context, up);
  return launch_experts<Product::kSwiglu, kMostRows>(context, up);
}

template <int kMostRows>
Status launch_both(CudaContext& context, ExpertForm form, const Params& up, const Params& down) {
  HEDDLE_RETURN_IF_ERROR(launch_up<kMostRows>(context, form, up));
  return launch_experts<Product::kDown, kMostRows>(context, down);
}

}  // namespace

bool routed_moe_is_tiled(const CudaContext& context, const RoutedMoeShape& shape) {
  // K must have at least two steps, because blocks claim their next item in the second step.
  const auto has_steps = [](int64_t K) { return K >= 2 * kDepth && K % kDepth == 0; };
  return context.gpu.properties().major == 9 && !context.exact && shape.x == DType::kBf16 &&
         (shape.weight == DType::kBf16 || shape.weight == DType::kPacked) && has_steps(shape.H) &&
         has_steps(shape.I);
}

Status run_tiled_experts(CudaContext& context, const TiledExpertsArgs& args) {
  const RoutedMoeArgs& moe = *args.moe;
  const int64_t H = moe.w2.shape[1];
  const int64_t I = moe.w2.shape[2];
  const bool bounded = moe.activation.limit != 0;
  const int64_t rows_each = rows_per_hidden(moe.activation.form);
  Params up{.x = args.x.as<CudaBf16>(),
            .x_stride = args.x.row_stride,
            .tiles = args.tiles,
            .num_taken = args.num_taken,
            .row_pair = args.row_pair,
            .bias = moe.w13_bias.as<float>(),
            .y = static_cast<CudaBf16*>(args.hidden),
            .A = static_cast<int32_t>(moe.experts_per_token),
            .num_tiles = static_cast<int32_t>(args.num_tiles),
            .blocks = static_cast<int32_t>(ceil_div(rows_each * I, 256)),
            .K = static_cast<int32_t>(H),
            .N = static_cast<int32_t>(I),
            .expert_rows = static_cast<int32_t>(rows_each * I),
            .limit = bounded ? moe.activation.limit : std::numeric_limits<float>::infinity(),
            .alpha = bounded ? moe.activation.alpha : 1.0f,
            .up_offset = bounded ? 1.0f : 0.0f};
  HEDDLE_RETURN_IF_ERROR(sm90::map_boxes(stacked(moe.w13), 64, up.weights));

  Params down = up;
  down.num_taken = args.num_taken + 1;
  down.bias = moe.w2_bias.as<float>();
  down.y = static_cast<CudaBf16*>(args.down);
  down.blocks = static_cast<int32_t>(ceil_div(H, 256));
  down.K = static_cast<int32_t>(I);
  down.N = static_cast<int32_t>(H);
  down.expert_rows = static_cast<int32_t>(H);
  HEDDLE_RETURN_IF_ERROR(sm90::map_boxes(stacked(moe.w2), 64, down.weights));
  HEDDLE_RETURN_IF_ERROR(
      sm90::map_boxes({args.hidden, DType::kBf16, Shape{args.num_rows, I}}, kBoxRows, down.rows));
  constexpr int kFew = MoeDeviceScratch::kFewTileRows, kMany = MoeDeviceScratch::kManyTileRows;
  const ExpertForm form = moe.activation.form;
  return args.tile_rows == kFew ? launch_both<kFew>(context, form, up, down)
                                : launch_both<kMany>(context, form, up, down);
}

}  // namespace heddle::ops
