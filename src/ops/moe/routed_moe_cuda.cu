// SPDX-License-Identifier: Apache-2.0
// y[t] = sum over a of weights[t, a] W2_e f(W13_e x[t]): route, sort, two products, combine, for
// some tokens (a pass) at a time. count_kernel, place_kernel: a block sorts a chunk of (token,
// slot) pairs by expert. up_kernel, down_kernel: blocks with the same blockIdx.x compute a tile of
// up to 4 rows of one expert, a warp four columns (row_products.cuh). combine_kernel: a thread
// computes eight columns of a token. Flops: 6 * R * I * H, R = T * A. Bytes: the chosen experts'
// weights once a tile. Also chooses the kernels: few_experts.cu for few tokens in bf16,
// routed_moe_sm90.cu on Hopper from 32 tokens on in bf16 and fast mode, packed_tiles.cu for
// quantised experts from 17 tokens on with few rows each, the kernels here for everything else.
#include "ops/cuda/launch.cuh"
#include "ops/elementwise/elementwise.h"
#include "ops/gemm/linear.h"
#include "ops/gemm/packed_linear.h"
#include "ops/gemm/skinny_product.h"
#include "ops/moe/device_scratch.h"
#include "ops/moe/expert_rows.cuh"
#include "ops/moe/few_experts.h"
#include "ops/moe/packed_experts.cuh"
#include "ops/moe/packed_tiles.cuh"
#include "ops/moe/routed_moe.h"
#include "ops/moe/routed_moe_sm90.h"

namespace heddle::ops {

namespace {

using expert_rows::kThreads, expert_rows::kWarps, expert_rows::ProductParams;

constexpr int kMostSortPairs = static_cast<int>(MoeDeviceScratch::kMostSortPairs);

struct SortParams {
  const int32_t* experts;  // [R]: expert of each (token, slot) pair
  int32_t* counts;         // [chunks, E]: pairs of each chunk for each expert
  int32_t* row_pair;
  ExpertTile* tiles;
  int32_t* taken;  // [2]: counters that this kernel sets to 0
  int R, E, num_tiles, tile_rows;
  int chunk_pairs;  // (token, slot) pairs for each block, at most kMostSortPairs
};

// Counts the pairs of the block's chunk for each expert e in counts[e], in shared memory.
__device__ inline void count_chunk(const SortParams& p, int* counts) {
  for (int e = threadIdx.x; e < p.E; e += kThreads) counts[e] = 0;
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x) * p.chunk_pairs;
  for (int i = threadIdx.x; i < min(p.chunk_pairs, p.R - first); i += kThreads) {
    atomicAdd(&counts[p.experts[first + i]], 1);
  }
  __syncthreads();
}

// A block counts the pairs of a chunk by expert. Reads R numbers and writes E for each chunk.
__global__ void __launch_bounds__(kThreads) count_kernel(const __grid_constant__ SortParams p) {
  wait_for_inputs();
  extern __shared__ int counts[];  // [E]: pairs of the chunk for each expert
  count_chunk(p, counts);
  for (int e = threadIdx.x; e < p.E; e += kThreads) p.counts[blockIdx.x * p.E + e] = counts[e];
}

// The sum of `value` over the threads before this one. `scratch` has kWarps numbers.
__device__ inline int sum_before(int value, int* scratch) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int until = value;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int more = __shfl_up_sync(0xffffffffu, until, distance);
    if (lane >= distance) until += more;
  }
  __syncthreads();  // `scratch` may be used again
  if (lane == kWarp - 1) scratch[warp] = until;
  __syncthreads();
  for (int w = 0; w < warp; ++w) until += scratch[w];
  return until - value;
}

// A block places a chunk of pairs. Rows are sorted by expert, then in the order of (token, slot),
// so that the result does not depend on timing. The first block also lists the tiles. If all pairs
// are one chunk, count_kernel is not launched, and this kernel counts itself. Reads the counts of
// all chunks, and compares each pair of the chunk with those before it.
__global__ void __launch_bounds__(kThreads) place_kernel(const __grid_constant__ SortParams p) {
  wait_for_inputs();
  extern __shared__ int shared[];
  int* totals = shared;           // [E]: number of pairs of each expert
  int* next_rows = shared + p.E;  // [E]: row of the chunk's first pair for each expert
  __shared__ int experts[kMostSortPairs];
  __shared__ int scratch[kWarps];
  __shared__ int num_used_tiles;
  const int chunk = static_cast<int>(blockIdx.x);
  const int num_chunks = static_cast<int>(gridDim.x);
  const int first = chunk * p.chunk_pairs;
  const int num_pairs = min(p.chunk_pairs, p.R - first);
  for (int i = threadIdx.x; i < num_pairs; i += kThreads) experts[i] = p.experts[first + i];
  if (num_chunks == 1) {
    count_chunk(p, totals);
    for (int e = threadIdx.x; e < p.E; e += kThreads) next_rows[e] = 0;
  } else {
    constexpr int kAtOnce = 32;
    for (int e = threadIdx.x; e < p.E; e += kThreads) {
      int total = 0;
      int before = 0;
      for (int first_chunk = 0; first_chunk < num_chunks; first_chunk += kAtOnce) {
        int chunk_counts[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int c = first_chunk + i;
          chunk_counts[i] = c < num_chunks ? p.counts[c * p.E + e] : 0;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          total += chunk_counts[i];
          before += first_chunk + i < chunk ? chunk_counts[i] : 0;
        }
      }
      totals[e] = total;
      next_rows[e] = before;
    }
  }
  __syncthreads();

  // A thread has neighbouring experts.
  const int each = (p.E + kThreads - 1) / kThreads;
  const int begin = min(p.E, static_cast<int>(threadIdx.x) * each), end = min(p.E, begin + each);
  const auto tiles_of = [&](int e) { return (totals[e] + p.tile_rows - 1) / p.tile_rows; };
  int rows = 0;
  int tiles = 0;
  for (int e = begin; e < end; ++e) {
    rows += totals[e];
    tiles += tiles_of(e);
  }
  int row = sum_before(rows, scratch);
  int tile = sum_before(tiles, scratch);
  for (int e = begin; e < end; ++e) {
    next_rows[e] += row;
    if (chunk == 0) {
      for (int i = 0; i < tiles_of(e); ++i) {
        p.tiles[tile + i] = {.expert = e,
                             .first_row = row + i * p.tile_rows,
                             .num_rows = min(p.tile_rows, totals[e] - i * p.tile_rows)};
      }
    }
    row += totals[e];
    tile += tiles_of(e);
  }
  if (chunk == 0 && threadIdx.x == kThreads - 1) num_used_tiles = tile;
  __syncthreads();
  if (chunk == 0) {
    if (threadIdx.x < 2) p.taken[threadIdx.x] = 0;
    for (int i = num_used_tiles + threadIdx.x; i < p.num_tiles; i += kThreads) p.tiles[i] = {};
  }
  for (int i = threadIdx.x; i < num_pairs; i += kThreads) {
    const int expert = experts[i];
    int rank = 0;
    for (int j = 0; j < i; ++j) rank += experts[j] == expert ? 1 : 0;
    p.row_pair[next_rows[expert] + rank] = first + i;
  }
}

struct RoundsParams {
  const ExpertTile* tiles;  // [num_tiles], sorted by expert; those after the last one have no rows
  ExpertTile* round_tiles;  // [rounds, num_tiles]: the tiles of each round
  int32_t* round_taken;     // [rounds, 2]: counters that this kernel sets to 0
  int num_tiles, experts_of_round;
};

// A block lists the tiles of a round's experts, whose ids are counted from the round's first
// expert.
__global__ void __launch_bounds__(kThreads) rounds_kernel(const __grid_constant__ RoundsParams p) {
  wait_for_inputs();
  __shared__ int num_before;
  const int round = static_cast<int>(blockIdx.x);
  const int first = round * p.experts_of_round;
  ExpertTile* const own = p.round_tiles + static_cast<int64_t>(round) * p.num_tiles;
  if (threadIdx.x == 0) num_before = 0;
  if (threadIdx.x < 2) p.round_taken[2 * round + threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_tiles; i += kThreads) {
    const ExpertTile tile = p.tiles[i];
    if (tile.num_rows > 0 && tile.expert < first) atomicAdd(&num_before, 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.num_tiles; i += kThreads) {
    ExpertTile tile = {};
    if (num_before + i < p.num_tiles) tile = p.tiles[num_before + i];
    if (tile.num_rows == 0 || tile.expert >= first + p.experts_of_round) {
      own[i] = {};
    } else {
      tile.expert -= first;
      own[i] = tile;
    }
  }
}

// small, so that a single token is spread over several multiprocessors.
constexpr int kCombineThreads = 64;

struct CombineParams {
  const void* down;      // [T * A, H]: expert output of each (token, slot) pair
  const float* weights;  // [T * A]: weight of each (token, slot) pair
  TargetRows y;
  SourceRows shared;  // [T, H]; without memory: there is no shared expert
  const float* gate;  // gate of the shared expert; null: it is not gated
  int64_t gate_stride;
  int64_t A, H;
  int64_t octets_per_row, num_octets;
};

// Adds the shared expert's output for a token, rounded to y's dtype as separate ops would.
__device__ inline void add_shared(const CombineParams& p, int64_t t, int64_t h, int64_t count,
                                  float (&sum)[kOctet]) {
  float own[kOctet];
  p.shared.load(t, h, count, own);
  if (p.gate != nullptr) {
    const float gate = 1.0f / (1.0f + expf(-p.gate[t * p.gate_stride]));
#pragma unroll
    for (int j = 0; j < kOctet; ++j) own[j] = rounded_as(p.y.dtype, own[j] * gate);
  }
#pragma unroll
  for (int j = 0; j < kOctet; ++j) sum[j] = rounded_as(p.y.dtype, sum[j]) + own[j];
}

// y[t] = sum over ascending a of weights[t, a] * down[t, a]. A thread computes eight columns. Reads
// A * H elements and writes H a token: the floor is their bytes over the bandwidth.
template <typename Down>
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const __grid_constant__ CombineParams p) {
  wait_for_inputs();
  for (int64_t i = int64_t{blockIdx.x} * kCombineThreads + threadIdx.x; i < p.num_octets;
       i += int64_t{gridDim.x} * kCombineThreads) {
    const int64_t t = i / p.octets_per_row;
    const int64_t h = i % p.octets_per_row * kOctet;
    const int64_t count = p.H - h;
    const bool aligned = p.H % kOctet == 0;
    float sum[kOctet] = {};
#pragma unroll 4
    for (int64_t a = 0; a < p.A; ++a) {
      const Down* row = static_cast<const Down*>(p.down) + (t * p.A + a) * p.H + h;
      float values[kOctet];
      if (aligned) {
        load_octet(row, values);
      } else {
        load_elements(row, count, values);
      }
      const float weight = p.weights[t * p.A + a];
#pragma unroll
      for (int j = 0; j < kOctet; ++j) sum[j] = fmaf(weight, values[j], sum[j]);
    }
    if (p.shared.data != nullptr) add_shared(p, t, h, count, sum);
    p.y.store(t, h, count, sum);
  }
}

bool experts_are_aligned(const TensorView& weight) {
  if (weight.packed != nullptr) return true;
  const int64_t row = bytes_of(weight.dtype, weight.shape[2]);
  return row % 16 == 0 && bytes_of(weight.dtype, weight.row_stride) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(weight.data) % 16 == 0;
}

// Tokens [first, first + T) of a call that are computed together, and their scratch memory.
class Pass {
 public:
  Pass(CudaContext& context, const RoutedMoeArgs& args, const RoutedMoeShape& shape, int64_t first,
       int64_t T, ExpertProducts products)
      : context_(context),
        args_(args),
        shape_(shape),
        first_(first),
        T_(T),
        products_(products),
        layout_(T, shape, products),
        scratch_(aligned_start(args.workspace)) {}

  Status run() {
    const bool few = few_experts_fit(context_, args_, T_);
    if (few && few_experts_route(args_)) return multiply_few(logits());
    HEDDLE_RETURN_IF_ERROR(route());
    if (few) return multiply_few({});
    HEDDLE_RETURN_IF_ERROR(sort());
    HEDDLE_RETURN_IF_ERROR(is_tiled() ? multiply_tiles() : multiply());
    HEDDLE_RETURN_IF_ERROR(multiply_shared());
    return combine();
  }

 private:
  static std::byte* aligned_start(std::span<std::byte> workspace) {
    const auto address = reinterpret_cast<uintptr_t>(workspace.data());
    return workspace.data() + (128 - address % 128) % 128;
  }

  template <typename Element>
  [[nodiscard]] Element* at(int64_t offset) const {
    return reinterpret_cast<Element*>(scratch_ + offset);
  }

  [[nodiscard]] int64_t num_pairs() const { return T_ * shape_.A; }

  [[nodiscard]] bool is_tiled() const { return products_ == ExpertProducts::kTiled; }

  [[nodiscard]] TensorView x() const {
    const auto* data = static_cast<const std::byte*>(args_.x.data) +
                       bytes_of(args_.x.dtype, first_ * args_.x.row_stride);
    return {data, args_.x.dtype, {T_, shape_.H}, args_.x.row_stride};
  }

  [[nodiscard]] MutableTensorView y() const {
    return {static_cast<std::byte*>(args_.y.data) +
                bytes_of(args_.y.dtype, first_ * args_.y.row_stride),
            args_.y.dtype,
            {T_, shape_.H},
            args_.y.row_stride};
  }

  [[nodiscard]] MutableTensorView hidden() const {
    return {at<std::byte>(layout_.hidden), shape_.x, {num_pairs(), shape_.I}};
  }

  [[nodiscard]] const int32_t* row_sequences() const {
    return args_.row_sequences == nullptr ? nullptr : args_.row_sequences + first_;
  }

  [[nodiscard]] TensorView logits() const {
    return {args_.router_logits.row<float>(first_),
            DType::kF32,
            {T_, shape_.E},
            args_.router_logits.row_stride};
  }

  Status route() {
    const Shape chosen{T_, shape_.A};
    return moe_route_cuda(context_, {.logits = logits(),
                                     .experts = {at<int32_t>(layout_.experts), DType::kI32, chosen},
                                     .weights = {at<float>(layout_.weights), DType::kF32, chosen},
                                     .renormalize = args_.renormalize,
                                     .scoring = args_.scoring,
                                     .correction = args_.correction,
                                     .expert_scales = args_.expert_scales,
                                     .row_sequences = row_sequences()});
  }

  Status sort() {
    const SortParams params{.experts = at<int32_t>(layout_.experts),
                            .counts = at<int32_t>(layout_.counts),
                            .row_pair = at<int32_t>(layout_.row_pair),
                            .tiles = at<ExpertTile>(layout_.tiles),
                            .taken = at<int32_t>(layout_.taken),
                            .R = static_cast<int>(num_pairs()),
                            .E = static_cast<int>(shape_.E),
                            .num_tiles = static_cast<int>(layout_.num_tiles),
                            .tile_rows = static_cast<int>(layout_.tile_rows),
                            .chunk_pairs = static_cast<int>(layout_.chunk_pairs)};
    const int64_t chunks = ceil_div(num_pairs(), layout_.chunk_pairs);
    const auto shared_bytes = static_cast<size_t>(shape_.E) * sizeof(int);
    if (chunks > 1) {
      HEDDLE_RETURN_IF_ERROR(launch(context_, "moe_count", count_kernel, grid_of(chunks), kThreads,
                                    params, shared_bytes));
    }
    return launch(context_, "moe_place", place_kernel, grid_of(chunks), kThreads, params,
                  2 * shared_bytes);
  }

  [[nodiscard]] ProductParams up_product() const {
    return {.bias = args_.w13_bias.as<float>(),
            .row_pair = at<int32_t>(layout_.row_pair),
            .tiles = at<ExpertTile>(layout_.tiles),
            .y = TargetRows::of(hidden()),
            .A = shape_.A,
            .K = shape_.H,
            .N = shape_.I,
            .activation = args_.activation,
            .aligned = rows_are_aligned(args_.x) && experts_are_aligned(args_.w13)};
  }

  [[nodiscard]] ProductParams down_product() const {
    ProductParams down = up_product();
    down.bias = args_.w2_bias.as<float>();
    down.y = TargetRows::of({at<std::byte>(layout_.down), DType::kF32, {num_pairs(), shape_.H}});
    down.K = shape_.I;
    down.N = shape_.H;
    down.aligned = bytes_of(shape_.x, shape_.I) % 16 == 0 && experts_are_aligned(args_.w2);
    return down;
  }

  Status multiply() {
    HEDDLE_RETURN_IF_ERROR(multiply_up());
    return multiply_down();
  }

  Status multiply_up() {
    const ProductParams product = up_product();
    if (products_ == ExpertProducts::kPacked) {
      return packed_tiles::multiply_up(context_, product, x(), args_.w13, layout_.num_tiles);
    }
    if (args_.w13.packed != nullptr) {
      return packed_expert_up(context_, product, x(), packed_rows(args_.w13), layout_.num_tiles);
    }
    return with_plain_rows(x(), args_.x.row_stride, 0, [&](const auto& x) {
      return with_plain_rows(args_.w13, shape_.H, args_.w13.row_stride, [&](const auto& weight) {
        return expert_rows::launch_up(context_, product, x, weight, layout_.num_tiles);
      });
    });
  }

  Status multiply_down() {
    const ProductParams product = down_product();
    if (products_ == ExpertProducts::kPacked) {
      return packed_tiles::multiply_down(context_, product, hidden(), args_.w2, layout_.num_tiles);
    }
    if (args_.w2.packed != nullptr) {
      return packed_expert_down(context_, product, hidden(), packed_rows(args_.w2),
                                layout_.num_tiles);
    }
    return with_plain_rows(hidden(), shape_.I, 0, [&](const auto& x) {
      return with_plain_rows(args_.w2, shape_.I, args_.w2.row_stride, [&](const auto& weight) {
        return expert_rows::launch_down(context_, product, x, weight, layout_.num_tiles);
      });
    });
  }

  // check_expert_weight() has checked that there is one part.
  static const quant::PackedRows& packed_rows(const TensorView& weight) {
    return weight.packed->parts[0].packed;
  }

  // Computes the tokens with run_few_experts(). Without `scores`, the tokens must have been routed.
  Status multiply_few(const TensorView& scores) {
    return run_few_experts(context_, {.moe = &args_,
                                      .x = x(),
                                      .y = y(),
                                      .experts = at<int32_t>(layout_.experts),
                                      .weights = at<float>(layout_.weights),
                                      .logits = scores,
                                      .hidden = at<std::byte>(layout_.hidden),
                                      .shared = shared(),
                                      .row_sequences = row_sequences()});
  }

  Status multiply_tiles() {
    if (layout_.dense_rounds > 0) return multiply_in_rounds();
    return multiply_tiles(args_, at<ExpertTile>(layout_.tiles), at<int32_t>(layout_.taken));
  }

  Status multiply_tiles(const RoutedMoeArgs& moe, const ExpertTile* tiles, int32_t* taken) {
    return run_tiled_experts(context_, {.moe = &moe,
                                        .x = x(),
                                        .num_rows = num_pairs(),
                                        .row_pair = at<int32_t>(layout_.row_pair),
                                        .tiles = tiles,
                                        .num_tiles = layout_.num_tiles,
                                        .tile_rows = layout_.tile_rows,
                                        .num_taken = taken,
                                        .hidden = at<std::byte>(layout_.hidden),
                                        .down = at<std::byte>(layout_.down)});
  }

  // Dequantises some experts at a time to dense bf16 and multiplies them. Reads the codes once, and
  // writes and reads the numbers of all experts once: 1.9 ms for the experts of the 80B model in
  // fp8 at an H200's 4.2 TB/s, in addition to 1.3 for the products of 8,192 tokens. With fp32
  // multiply-adds these products would take some 16.
  Status multiply_in_rounds() {
    const RoundsParams params{.tiles = at<ExpertTile>(layout_.tiles),
                              .round_tiles = at<ExpertTile>(layout_.round_tiles),
                              .round_taken = at<int32_t>(layout_.round_taken),
                              .num_tiles = static_cast<int>(layout_.num_tiles),
                              .experts_of_round = static_cast<int>(layout_.dense_experts)};
    HEDDLE_RETURN_IF_ERROR(launch(context_, "moe_rounds", rounds_kernel,
                                  grid_of(layout_.dense_rounds), kThreads, params));
    for (int64_t round = 0; round < layout_.dense_rounds; ++round) {
      const int64_t first = round * layout_.dense_experts;
      const int64_t count = std::min(layout_.dense_experts, shape_.E - first);
      std::byte* const dense = at<std::byte>(layout_.dense);
      std::byte* const dense_down = dense + layout_.dense_experts * 4 * shape_.I * shape_.H;
      RoutedMoeArgs some = args_;
      HEDDLE_ASSIGN_OR_RETURN(some.w13, dense_experts(args_.w13, first, count, dense));
      HEDDLE_ASSIGN_OR_RETURN(some.w2, dense_experts(args_.w2, first, count, dense_down));
      some.w13_bias = bias_of(args_.w13_bias, first, count);
      some.w2_bias = bias_of(args_.w2_bias, first, count);
      HEDDLE_RETURN_IF_ERROR(multiply_tiles(some, params.round_tiles + round * layout_.num_tiles,
                                            params.round_taken + 2 * round));
    }
    return {};
  }

  // Experts [first, first + count) of a weight; if they are quantised, dequantised into `target`.
  Result<TensorView> dense_experts(const TensorView& weight, int64_t first, int64_t count,
                                   std::byte* target) {
    const int64_t rows = weight.shape[1], K = weight.shape[2];
    const Shape shape{count, rows, K};
    if (weight.packed == nullptr) {
      return TensorView(weight.as<CudaBf16>() + first * rows * K, DType::kBf16, shape);
    }
    const quant::PackedRows some = packed_rows(weight).cut(first * rows, count * rows);
    const MutableTensorView dense(target, DType::kBf16, Shape{count * rows, K});
    HEDDLE_RETURN_IF_ERROR(dequantise_rows(context_, some, dense));
    return TensorView(target, DType::kBf16, shape);
  }

  static TensorView bias_of(const TensorView& bias, int64_t first, int64_t count) {
    if (bias.data == nullptr) return bias;
    const int64_t width = bias.shape[1];
    return {bias.as<float>() + first * width, DType::kF32, Shape{count, width}};
  }

  // The rows of a tensor with one row per token that belong to this pass.
  template <typename View>
  [[nodiscard]] View own_rows(View rows) const {
    if (rows.data == nullptr) return rows;
    auto* data =
        reinterpret_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(rows.data)));
    return {data + bytes_of(rows.dtype, first_ * rows.row_stride),
            rows.dtype,
            {T_, rows.shape[1]},
            rows.row_stride};
  }

  [[nodiscard]] std::optional<SharedExpert> shared() const {
    if (!args_.shared) return {};
    SharedExpert own = *args_.shared;
    own.gate_up = own_rows(own.gate_up);
    own.gate = own_rows(own.gate);
    own.hidden = own_rows(own.hidden);
    own.y = own_rows(own.y);
    return own;
  }

  Status multiply_shared() {
    const std::optional<SharedExpert> own = shared();
    if (!own) return {};
    const TensorView& gate_up = own->gate_up;
    const int64_t I = gate_up.shape[1] / 2;
    const TensorView gate(gate_up.data, gate_up.dtype, {T_, I}, gate_up.row_stride);
    const TensorView up(gate_up.as<std::byte>() + bytes_of(gate_up.dtype, I), gate_up.dtype,
                        {T_, I}, gate_up.row_stride);
    HEDDLE_RETURN_IF_ERROR(elementwise_cuda(
        context_, {.kind = ElementwiseKind::kSiluMul, .a = gate, .b = up, .y = own->hidden}));
    return linear_cuda(context_, {.x = own->hidden, .weight = own->down, .y = own->y});
  }

  Status combine() {
    const int64_t octets = ceil_div(shape_.H, kOctet);
    const std::optional<SharedExpert> own = shared();
    const CombineParams params{.down = at<std::byte>(layout_.down),
                               .weights = at<float>(layout_.weights),
                               .y = TargetRows::of(y()),
                               .shared = own ? SourceRows::of(own->y) : SourceRows(),
                               .gate = own ? own->gate.as<float>() : nullptr,
                               .gate_stride = own ? own->gate.row_stride : 0,
                               .A = shape_.A,
                               .H = shape_.H,
                               .octets_per_row = octets,
                               .num_octets = T_ * octets};
    return launch(context_, "moe_combine",
                  is_tiled() ? combine_kernel<CudaBf16> : combine_kernel<float>,
                  grid_of(ceil_div(params.num_octets, kCombineThreads)), kCombineThreads, params);
  }

  CudaContext& context_;
  const RoutedMoeArgs& args_;
  const RoutedMoeShape& shape_;
  const int64_t first_;
  const int64_t T_;
  const ExpertProducts products_;
  const MoeDeviceScratch layout_;
  std::byte* const scratch_;
};

// Up to kSkinnyRows tokens are computed by row products, whose bits differ from those of tensor
// cores.
ExpertProducts products_of(const CudaContext& context, const RoutedMoeArgs& args,
                           const RoutedMoeShape& shape) {
  const int64_t T = args.x.shape[0];
  const bool aligned = rows_are_aligned(args.x);
  const auto fits = [](const TensorView& weight) {
    return weight.packed != nullptr ||
           (weight.dtype == DType::kBf16 && experts_are_aligned(weight) && weight.dense());
  };
  const bool has_form =
      args.activation.form != ExpertForm::kBoundedSwiglu &&
      (args.activation.form != ExpertForm::kSquaredRelu || args.w13.packed == nullptr);
  const bool tiled = MoeDeviceScratch::tiles_pay(T, shape) && routed_moe_is_tiled(context, shape) &&
                     has_form && aligned && fits(args.w13) && fits(args.w2);
  const bool few_rows = T * shape.A < MoeDeviceScratch::kMinDenseRowsOfPacked * shape.E;
  if (args.activation.form != ExpertForm::kSquaredRelu && T > kSkinnyRows && (few_rows || !tiled) &&
      shape.x == DType::kBf16 && aligned && packed_tiles::fit(context, args.w13) &&
      packed_tiles::fit(context, args.w2)) {
    return ExpertProducts::kPacked;
  }
  return tiled ? ExpertProducts::kTiled : ExpertProducts::kRows;
}

}  // namespace

Status routed_moe_cuda(CudaContext& context, const RoutedMoeArgs& args) {
  const RoutedMoeShape shape{.H = args.x.shape[1],
                             .I = args.w2.shape[2],
                             .E = args.w2.shape[0],
                             .A = args.experts_per_token,
                             .weight = expert_dtype(args.w13.dtype, args.w2.dtype),
                             .x = args.x.dtype};
  const int64_t T = args.x.shape[0];
  const ExpertProducts products = products_of(context, args, shape);
  const int64_t at_once = MoeDeviceScratch::tokens_at_once(products == ExpertProducts::kTiled);
  for (int64_t first = 0; first < T; first += at_once) {
    HEDDLE_RETURN_IF_ERROR(
        Pass(context, args, shape, first, std::min(at_once, T - first), products).run());
  }
  return {};
}

}  // namespace heddle::ops
