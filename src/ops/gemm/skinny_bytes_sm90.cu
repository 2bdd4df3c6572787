// SPDX-License-Identifier: Apache-2.0
// Products of up to 16 rows of x with large weights of 8-bit floats or 8-bit integers, for Hopper.
//
// The codes never pass through registers: the copy engine copies them to shared memory, from where
// a warpgroup's products read them as they are stored. A row of x becomes two rows of the product,
// the larger and the smaller parts of its numbers as bytes (integer_octet.cuh, float_octet.cuh),
// with one factor for every 128 columns (a block of columns). The sums of a block of columns, exact
// for integers, become fp32 when they are multiplied by the scales of weight and x, so that the
// sums of a row do not depend on the other rows or on their number. Tensor cores add products of
// 8-bit floats with some 13 bits after the largest product.
//
// Each thread block has a share of the weight's rows and computes them in tiles of 64, 32 or 16
// rows. Each of four warpgroups has a quarter of K, and the four sums are added in order. Products
// always have 64 rows: after a tile's last row they read whatever is in memory, and these results
// are not stored. The same holds for columns after the rows of x. A warpgroup copies codes in
// stages of 8 KiB, as many ahead as the memory allows; the first ones are in flight before it waits
// for x.
//
// Bytes: the weight once, scales included; x again for each block, from the second-level cache.
// Measured on an H200 for E4M3 with scales of blocks: an LM head of 151,936 x 2,048 takes 76 us for
// one row and 103 for sixteen (floor 73; skinny_kernel.cuh, where registers widen codes for
// mma.sync, takes 119). 12,288 x 2,048 takes 10.3 and 20.8 (floor 6.0; 12.6 and 15.9 there). In
// decode steps of weights of the second size this kernel was 5 % slower all the same; the reason
// was not profiled. Every block converts all of x to bytes, and a block with so much shared memory
// may start later than others.
#include <algorithm>

#include "ops/cuda/float_octet.cuh"
#include "ops/cuda/sm90/bulk_copy.cuh"
#include "ops/cuda/sm90/byte_products.cuh"
#include "ops/cuda/sm90/tensor_map.h"
#include "ops/cuda/sm90/tiles.cuh"
#include "ops/gemm/skinny_kernel.cuh"

namespace heddle::ops::skinny {

namespace {

using sm90::kWarpgroup;

constexpr int kGroups = 4;  // warpgroups of a block
constexpr int kByteThreads = kGroups * kWarpgroup;
constexpr int kBlockColumns = 128;  // columns of K that share a factor of x: 128 bytes of a row
constexpr int kPieces = kBlockColumns / 16;
constexpr int kMostDepth = 4;    // most stages of a ring
constexpr int kMostRows = 64;    // most weight rows of a tile
constexpr int kSlack = 4 * 128;  // bytes after x that products may read
constexpr int kLeastRing = 32 << 10;

// Distance between pieces of x in units of 16 bytes, if there is room: 32 bytes more than a
// multiple of 128, so that the octets of a row are in different banks.
constexpr int spread_stride(int T) { return (2 * T + 5) / 8 * 8 + 2; }

constexpr __host__ __device__ int num_blocks(int K) {
  return (K + kBlockColumns - 1) / kBlockColumns;
}

// Layout of a block's shared memory, in this order: the ring of codes, x, its factors, sums.
struct Plan {
  int tile_rows = kMostRows;  // weight rows of a tile: 64, 32 or 16
  int run_rows = kTile;       // weight rows that one copy covers: 8 to tile_rows
  int runs_of_tile = kMostRows / kTile;
  int blocks = 1;        // blocks of 128 columns in a stage; blocks * tile_rows is at most 64
  int depth = 0;         // stages of the ring, at least 2
  int piece_stride = 2;  // distance of pieces of x in units of 16 bytes: at least 2 T

  [[nodiscard]] __host__ __device__ int stage_bytes() const {
    return tile_rows * blocks * kBlockColumns;
  }

  [[nodiscard]] __host__ __device__ int ring_bytes() const {
    return kGroups * depth * stage_bytes();
  }

  // x is padded to whole blocks of columns.
  [[nodiscard]] __host__ __device__ int bytes_of_x(int K) const {
    return num_blocks(K) * kPieces * piece_stride * 16 + kSlack;
  }

  [[nodiscard]] __host__ __device__ static int bytes_of_factors(int T, int K) {
    return T * num_blocks(K) * static_cast<int>(sizeof(UnitOfX));
  }

  [[nodiscard]] __host__ __device__ int bytes_of_sums(int T) const {
    return (kGroups - 1) * tile_rows * T * static_cast<int>(sizeof(float));
  }

  [[nodiscard]] int64_t num_bytes(int T, int K) const {
    // A product reads 64 rows of 128 bytes even for a smaller tile. After the tile's last row it
    // reads past the ring, where memory must exist.
    const int behind = (kMostRows - tile_rows) * kBlockColumns;
    return int64_t{ring_bytes()} +
           std::max<int64_t>(int64_t{bytes_of_x(K)} + bytes_of_factors(T, K) + bytes_of_sums(T),
                             behind);
  }
};

struct ByteParams {
  Params products;
  Plan plan;
  CUtensorMap codes[kParts];  // each part's codes, in boxes of run_rows rows and 128 columns
  int scale_shifts[kParts];   // log2 of the rows that share scales; negative: not a power of two
};

// The consecutive runs of weight rows that a block computes, counted over all parts.
struct Share {
  int first, end;

  static __device__ Share of(int num_runs) {
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    const int each = num_runs / blocks, more = num_runs % blocks;
    const int first = block * each + min(block, more);
    return {first, first + each + (block < more ? 1 : 0)};
  }
};

// A tile of a share: some runs of one part.
struct Tile {
  int first, end;
  int part;

  static __device__ Tile at(const ByteParams& p, const Share& share, int first) {
    int part = 0, end_of_part = p.products.num_tiles;
#pragma unroll
    for (int i = static_cast<int>(kParts) - 1; i > 0; --i) {
      const int begins = p.products.parts[i].first_tile;
      if (first >= begins) {
        part = max(part, i);
      } else {
        end_of_part = begins;
      }
    }
    return {first, min(min(first + p.plan.runs_of_tile, share.end), end_of_part), part};
  }

  [[nodiscard]] __device__ int rows(const Plan& plan) const {
    return (end - first) * plan.run_rows;
  }

  // The tile's first weight row, counted within its part.
  [[nodiscard]] __device__ int first_row(const ByteParams& p) const {
    return (first - p.products.parts[part].first_tile) * p.plan.run_rows;
  }
};

// The blocks of 128 columns that a warpgroup processes; the last block of K may have 64 columns.
struct OwnColumns {
  int first, count;  // first block of 128 columns and number of such blocks

  static __device__ OwnColumns of(int K, int group) {
    const int all = num_blocks(K);
    const int each = (all + kGroups - 1) / kGroups;
    const int first = min(group * each, all);
    return {first, min(each, all - first)};
  }
};

// Barriers of a stage of a warpgroup's ring. `full` counts the bytes that copies have written,
// `empty` the warps that have finished with them.
struct StageBarriers {
  sm90::Barrier full, empty;
};

// Copies the codes of a warpgroup's tiles, a stage at a time: some lanes of its first warp copy one
// run of rows of one block of columns each.
class CodeLoader {
 public:
  __device__ CodeLoader(const ByteParams& p, const Share& share, const OwnColumns& columns,
                        uint8_t* ring, StageBarriers* barriers)
      : p_(p),
        share_(share),
        columns_(columns),
        ring_(ring),
        barriers_(barriers),
        tile_(Tile::at(p, share, share.first)) {
    run_ = lane() % p.plan.runs_of_tile;
    block_of_stage_ = lane() / p.plan.runs_of_tile;
  }

  // Starts the copies of the next stage, if there is one. With `waits`, it first waits for the
  // products of the stage's previous contents.
  __device__ void load(bool waits) {
    const Plan& plan = p_.plan;
    if (columns_.count == 0 || tile_.first >= share_.end) return;
    StageBarriers& barriers = barriers_[stage_];
    if (waits) sm90::wait(barriers.empty, parity_);
    const int blocks = min(plan.blocks, columns_.count - block_);
    if (lane() == 0) {
      sm90::arrive_expecting(barriers.full,
                             static_cast<uint32_t>(blocks * tile_.rows(plan) * kBlockColumns));
    }
    __syncwarp();
    if (block_of_stage_ < blocks && run_ < tile_.end - tile_.first) {
      sm90::copy_box(ring_ + stage_ * plan.stage_bytes() +
                         (block_of_stage_ * plan.tile_rows + run_ * plan.run_rows) * kBlockColumns,
                     p_.codes[tile_.part],
                     (columns_.first + block_ + block_of_stage_) * (kBlockColumns / 2),
                     tile_.first_row(p_) + run_ * plan.run_rows, barriers.full);
    }
    block_ += plan.blocks;
    if (block_ >= columns_.count) {
      block_ = 0;
      tile_ = Tile::at(p_, share_, tile_.end);
    }
    if (++stage_ == plan.depth) {
      stage_ = 0;
      if (waits) parity_ ^= 1;
    }
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

  const ByteParams& p_;
  const Share share_;
  const OwnColumns columns_;
  uint8_t* const ring_;
  StageBarriers* const barriers_;
  Tile tile_;
  int run_, block_of_stage_;  // the run, and the block within a stage, that this lane copies
  int block_ = 0;             // next block of the warpgroup's columns
  int stage_ = 0;
  uint32_t parity_ = 0;
};

// The scales and zero points of a thread's two rows of a tile in one block of columns.
struct RawScales {
  uint32_t scales[2];  // scales in the stored format
  uint32_t zeros[2];
  quant::ScaleType type;
};

// Loads scales and zero points one block ahead of the products.
template <bool kZeros>
class ScaleReader {
 public:
  // `row` is the first of the thread's rows of a tile; the second one is eight rows later.
  __device__ ScaleReader(const ByteParams& p, const Share& share, const OwnColumns& columns,
                         int row)
      : p_(p), share_(share), columns_(columns), row_(row), end_(share.first) {
    if (columns_.count > 0) seek();
  }

  // Loads the next block's scales.
  __device__ void load(RawScales& to) {
    to.type = type_;
    if (real_) {
      const int group = ((columns_.first + block_) * kBlockColumns) >> shift_;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        // The loaded values must not be used here: that would wait for the load.
        if (type_ == quant::ScaleType::kF32) {
          to.scales[r] = reinterpret_cast<const uint32_t*>(scales_[r])[group];
        } else {
          to.scales[r] = reinterpret_cast<const uint16_t*>(scales_[r])[group];
        }
        if constexpr (kZeros) to.zeros[r] = has_zeros_ ? zeros_[r][group] : zero_;
      }
    }
    if (++block_ < columns_.count) return;
    block_ = 0;
    seek();
  }

 private:
  // Moves on to the next tile.
  __device__ void seek() {
    real_ = end_ < share_.end;
    if (!real_) return;
    const Tile tile = Tile::at(p_, share_, end_);
    end_ = tile.end;
    real_ = row_ < tile.rows(p_.plan);
    const Part& part = p_.products.parts[tile.part];
    const PackedSource& source = part.packed;
    type_ = source.scale_type;
    shift_ = source.group_shift;
    const int scale_shift = p_.scale_shifts[tile.part];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(tile.first_row(p_) + row_ + 8 * r, part.N - 1);
      int scale_row = source.first_scale_rows + row;
      if (scale_shift >= 0) {
        scale_row >>= scale_shift;
      } else {
        scale_row /= source.rows_per_scale;
      }
      scales_[r] = source.scales + scale_row * source.scale_bytes;
      if constexpr (kZeros) zeros_[r] = source.zeros + row * source.num_groups;
    }
    if constexpr (kZeros) {
      has_zeros_ = source.zeros != nullptr;
      zero_ = static_cast<uint32_t>(source.constant_zero);
    }
  }

  const ByteParams& p_;
  const Share share_;
  const OwnColumns columns_;
  const int row_;
  int end_;  // end of the tile, counted in runs
  int block_ = 0;
  bool real_ = false, has_zeros_ = false;
  quant::ScaleType type_{};
  int shift_ = 0;
  uint32_t zero_ = 0;
  const uint8_t* scales_[2] = {};
  const uint8_t* zeros_[2] = {};
};

// The octets of x before they are converted to bytes.
template <int kRows, Prologue kPrologue>
struct Octets {
  static constexpr int kFillThreads = kByteThreads;

  __device__ explicit Octets(const Params& /*p*/) {}

  __device__ void prepare(const Params& /*p*/, uint4* /*x*/) const {}

  // Loads octet i of row t. Several such loads may be in flight together.
  __device__ uint4 load(const Params& p, const uint4* /*x*/, int t, int i) const {
    const uint4 octet = *reinterpret_cast<const uint4*>(p.x + t * p.x_stride + i * kOctet);
    if constexpr (kPrologue == Prologue::kNone) {
      return octet;
    } else {
      float a[kOctet];
      float b[kOctet];
      load_octet(reinterpret_cast<const CudaBf16*>(&octet), a);
      load_octet(p.gate.b + i * kOctet, b);
#pragma unroll
      for (int j = 0; j < kOctet; ++j) a[j] = element_of(p.gate.kind, a[j], b[j]);
      uint4 gated;
      store_octet(a, reinterpret_cast<CudaBf16*>(&gated));
      return gated;
    }
  }
};

// Normalised rows are first stored in shared memory, as in the bf16 kernel.
template <int kRows>
struct Octets<kRows, Prologue::kNorm> {
  static constexpr int kFillThreads = skinny::kFillThreads;

  RowsOfX<kRows, Prologue::kNorm, InPieces> rows;

  __device__ explicit Octets(const Params& p) : rows(p) {}

  __device__ void prepare(const Params& p, uint4* x) const { rows.fill(p, x); }

  // Loads an octet that this thread has stored.
  __device__ uint4 load(const Params& p, const uint4* x, int t, int i) const {
    return x[InPieces::place(p, t, i)];
  }
};

// Stores x as bytes: for each 16 columns 32 bytes of every row, with zeros from the last column to
// the end of its block.
template <int kRows, Prologue kPrologue, quant::Code kCode>
__device__ inline void store_bytes(const Octets<kRows, kPrologue>& octets, const Params& p,
                                   uint4* x, UnitOfX* factors) {
  constexpr int kOctetsOfBlock = kBlockColumns / kOctet;
  constexpr int kFill = Octets<kRows, kPrologue>::kFillThreads;
  constexpr int kTeams = kByteThreads / kFill;
  using Octet = std::conditional_t<kCode == quant::Code::kU8, IntegerOctet, FloatOctet>;
  const int team = static_cast<int>(threadIdx.x) / kFill;
  const int thread = static_cast<int>(threadIdx.x) % kFill;
  const int count = p.K / kOctet;
  const int blocks = num_blocks(p.K);
  constexpr int kNormTeams = Form<kRows>::kTeams;
  const int first = kTeams == 1 ? 0 : team;
  const int step = kTeams == 1 ? 1 : kNormTeams;
  if (kTeams > 1 && team >= kNormTeams) return;
  for (int t = first; t < p.T; t += step) {
#pragma unroll 4
    for (int i = thread; i / kWarp * kWarp < blocks * kOctetsOfBlock; i += kFill) {
      const Octet own =
          Octet::template of<kOctetsOfBlock>(i < count ? octets.load(p, x, t, i) : uint4{});
      UnitOfX factor{own.factor, 0};
      if constexpr (kCode == quant::Code::kU8) {
        factor.sum = own.sum;
#pragma unroll
        for (int lane = 1; lane < kOctetsOfBlock; lane *= 2) {
          factor.sum += __shfl_xor_sync(~0u, factor.sum, lane);
        }
      }
      __syncwarp();  // other lanes have read the octets that are overwritten now
      if (i >= blocks * kOctetsOfBlock) continue;
      auto* const to = reinterpret_cast<uint2*>(x + InPieces::place(p, t, i / 2 * 2)) + i % 2;
      to[0] = own.high;
      to[2] = own.low;
      if (i % kOctetsOfBlock == 0) factors[t * blocks + i / kOctetsOfBlock] = factor;
    }
  }
}

// Converts a stored scale. `type` is the same for all threads, so that they do not diverge.
__device__ inline float scale_of(quant::ScaleType type, uint32_t stored) {
  if (type == quant::ScaleType::kF32) return __uint_as_float(stored);
  if (type == quant::ScaleType::kBf16) return __uint_as_float(stored << 16);
  return __half2float(__ushort_as_half(static_cast<uint16_t>(stored)));
}

// The bias or residual that is added to an element of y, loaded when the element's tile begins.
struct Addend {
  float bias = 0;
  CudaBf16 before{};
};

template <int kRows, Prologue kPrologue, quant::Code kCode>
__global__ void __launch_bounds__(kByteThreads, kRows == 1 ? 2 : 1)
    byte_kernel(const __grid_constant__ ByteParams p) {
  constexpr bool kIntegers = kCode == quant::Code::kU8;
  constexpr int kCount =
      kRows == 1 ? 4 : kRows;          // accumulators of a thread: two columns a row of x
  constexpr int kTokens = kCount / 4;  // tokens per thread, in two rows each
  using Sum = std::conditional_t<kIntegers, int32_t, float>;
  extern __shared__ __align__(1024) uint8_t raw[];
  const Params& products = p.products;
  const Plan& plan = p.plan;
  // Makes the value uniform in a warp, so that it need not be for product descriptors.
  const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kWarpgroup, 0);
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  // Row of a tile; the thread also has the row eight after it.
  const int row = thread / kWarp * 16 + thread % kWarp / 4;
  const int first_token = thread % 4;  // the thread also has every fourth token after it
  uint8_t* const ring = raw + group * plan.depth * plan.stage_bytes();
  __shared__ StageBarriers all_barriers[kGroups * kMostDepth];
  StageBarriers* const barriers = all_barriers + group * plan.depth;
  auto* const x = reinterpret_cast<uint4*>(raw + plan.ring_bytes());
  auto* const factors =
      reinterpret_cast<UnitOfX*>(reinterpret_cast<uint8_t*>(x) + plan.bytes_of_x(products.K));
  auto* const shared_sums = reinterpret_cast<float*>(
      reinterpret_cast<uint8_t*>(factors) + Plan::bytes_of_factors(products.T, products.K));

  const Octets<kRows, kPrologue> octets(products);
  const Share share = Share::of(products.num_tiles);
  const OwnColumns columns = OwnColumns::of(products.K, group);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kGroups * plan.depth; ++i) {
      sm90::init(all_barriers[i].full, 1);
      sm90::init(all_barriers[i].empty, kWarpgroup / kWarp);
    }
    sm90::publish_barriers();
  }
  __syncthreads();
  CodeLoader loader(p, share, columns, ring, barriers);
  const bool loads = thread < kWarp;
  if (loads) {
    // Weights are loaded before x is available.
    for (int i = 0; i < plan.depth; ++i) loader.load(false);
  }
  ScaleReader<kIntegers> reader(p, share, columns, row);
  RawScales next;
  reader.load(next);
  wait_for_inputs();
  octets.prepare(products, x);
  store_bytes<kRows, kPrologue, kCode>(octets, products, x, factors);
  sm90::fence_async_proxy();
  __syncthreads();

  // In steps of 16 bytes, as in descriptors.
  const int stride_of_x = plan.piece_stride;
  const uint64_t x_pieces = sm90::pieces_along_k(x, static_cast<uint32_t>(stride_of_x * 16));
  const UnitOfX* own_factors[kTokens];
#pragma unroll
  for (int j = 0; j < kTokens; ++j) {
    own_factors[j] = factors + min(first_token + 4 * j, products.T - 1) * num_blocks(products.K);
  }
  int stage = 0;
  uint32_t parity = 0;
  bool begun = false;  // whether a stage has been multiplied
  for (Tile tile = Tile::at(p, share, share.first); tile.first < share.end;
       tile = Tile::at(p, share, tile.end)) {
    const Part& part = products.parts[tile.part];
    const int tile_rows = tile.rows(plan);
    const int first_n = tile.first_row(p) + row;
    const auto is_real = [&](int r) { return row + 8 * r < tile_rows && first_n + 8 * r < part.N; };
    Addend addends[2][kTokens];
    if (group == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!is_real(r)) break;
        const int n = first_n + 8 * r;
#pragma unroll
        for (int j = 0; j < kTokens; ++j) {
          const int t = first_token + 4 * j;
          if (t >= products.T) break;
          if (part.bias != nullptr) addends[r][j].bias = part.bias[n];
          if (part.residual != nullptr) {
            addends[r][j].before = part.residual[t * products.residual_stride + n];
          }
        }
      }
    }
    float totals[2][kTokens] = {};
    for (int first = 0; first < columns.count; first += plan.blocks) {
      sm90::wait(barriers[stage].full, parity);
      const int num = min(plan.blocks, columns.count - first);
      for (int block = 0; block < num; ++block) {
        const RawScales scales = next;
        const uint8_t* const codes =
            ring + stage * plan.stage_bytes() + block * plan.tile_rows * kBlockColumns;
        const uint64_t a = sm90::rows_along_k(codes, 0);
        const int at = columns.first + first + block;
        const uint64_t b = x_pieces + static_cast<uint64_t>(at * kPieces * stride_of_x);
        Sum sums[kCount];
        sm90::products_fence();
#pragma unroll
        for (int step = 0; step < kBlockColumns / 32; ++step) {
          sm90::byte_product(sums, a + static_cast<uint64_t>(step * 32 >> 4),
                             b + static_cast<uint64_t>(step * 2 * stride_of_x), step > 0);
        }
        sm90::products_commit();
        reader.load(next);
        if (block == 0) {
          // Loads the next stage into the memory of the previous one.
          if (loads && begun) loader.load(true);
          begun = true;
        }
        sm90::products_wait<0>();
        sm90::settle(sums);
        if (row >= tile_rows) continue;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float scale = scale_of(scales.type, scales.scales[r]);
#pragma unroll
          for (int j = 0; j < kTokens; ++j) {
            const UnitOfX of_x = own_factors[j][at];
            const Sum high = sums[4 * j + 2 * r], low = sums[4 * j + 2 * r + 1];
            float sum;
            if constexpr (kIntegers) {
              // The difference fits into 32 bits, although its terms may not.
              const auto all = static_cast<uint32_t>(high) * 256 + static_cast<uint32_t>(low) -
                               scales.zeros[r] * static_cast<uint32_t>(of_x.sum);
              sum = static_cast<float>(static_cast<int32_t>(all));
            } else {
              sum = high + low;
            }
            totals[r][j] = fmaf(sum, scale * of_x.factor, totals[r][j]);
          }
        }
      }
      if (thread % kWarp == 0) sm90::arrive(barriers[stage].empty);
      if (++stage == plan.depth) {
        stage = 0;
        parity ^= 1;
      }
    }
    __syncthreads();  // the sums of the previous tile have been read
    const auto place = [&](int of_group, int r, int t) -> float& {
      return shared_sums[((of_group - 1) * plan.tile_rows + row + 8 * r) * products.T + t];
    };
    if (group > 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (row + 8 * r >= tile_rows) break;
#pragma unroll
        for (int j = 0; j < kTokens; ++j) {
          const int t = first_token + 4 * j;
          if (t < products.T) place(group, r, t) = totals[r][j];
        }
      }
    }
    __syncthreads();
    if (group > 0) continue;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!is_real(r)) break;
      const int n = first_n + 8 * r;
#pragma unroll
      for (int j = 0; j < kTokens; ++j) {
        const int t = first_token + 4 * j;
        if (t >= products.T) break;
        float sum = totals[r][j];
#pragma unroll
        for (int g = 1; g < kGroups; ++g) sum += place(g, r, t);
        sum += addends[r][j].bias;
        if (part.residual != nullptr) {
          part.residual[t * products.residual_stride + n] =
              rounded<CudaBf16>(as_float(addends[r][j].before) + as_float(rounded<CudaBf16>(sum)));
        } else {
          part.y.store_one(t, n, sum);
        }
      }
    }
  }
}

// A plan with which two blocks fit on a multiprocessor, or else one with which one block fits; with
// a depth of 0 if there is none.
Plan plan_for(int T, int K, int rows_of_block, int64_t most_bytes) {
  constexpr int64_t kReserved = 2 << 10;  // bytes reserved per block, including static memory
  const int64_t half = (most_bytes + kReserved) / 2 - kReserved;

  struct Try {
    int64_t limit;
    int stride, least_depth;
    bool whole;  // true: stages hold 64 rows of 128 columns, or as many codes in another shape
  };

  for (const Try& tried : {Try{half, spread_stride(T), 3, true},
                           Try{most_bytes - kReserved, spread_stride(T), 2, false},
                           Try{most_bytes - kReserved, 2 * T, 2, false}}) {
    for (int tile_rows = rows_of_block <= 16   ? 16
                         : rows_of_block <= 32 ? 32
                                               : kMostRows;
         tile_rows >= 16; tile_rows /= 2) {
      for (int blocks = kMostRows / tile_rows; blocks >= 1; blocks /= 2) {
        if (tried.whole && blocks * tile_rows < kMostRows) continue;
        for (int depth = kMostDepth; depth >= tried.least_depth; --depth) {
          const Plan plan{.tile_rows = tile_rows,
                          .blocks = blocks,
                          .depth = depth,
                          .piece_stride = tried.stride};
          if (plan.ring_bytes() >= kLeastRing && plan.num_bytes(T, K) <= tried.limit) return plan;
        }
      }
    }
  }
  return {};
}

template <int kRows, Prologue kPrologue, quant::Code kCode>
Status launch_form_of_bytes(CudaContext& context, const ByteParams& params, unsigned grid) {
  const auto kernel = byte_kernel<kRows, kPrologue, kCode>;
  HEDDLE_RETURN_IF_ERROR(
      allow_shared(kernel, static_cast<size_t>(context.gpu.properties().shared_bytes - (1 << 10))));
  return launch(context, "linear", kernel, dim3(grid), kByteThreads, params,
                static_cast<size_t>(params.plan.num_bytes(params.products.T, params.products.K)));
}

// Divides the rows among blocks. The unit is a run, unless that would give a block 3 % more rows
// than with octets. Afterwards first_tile and num_tiles of the parts count runs.
unsigned deal_out(ByteParams& params, int most_blocks, int64_t shared_bytes) {
  Params& products = params.products;
  const auto count_runs = [&](int rows) {
    int runs = 0;
    for (Part& part : products.parts) {
      part.first_tile = runs;
      if (part.packed.codes != nullptr) runs += static_cast<int>(ceil_div(part.N, rows));
    }
    return runs;
  };
  const auto rows_of_block = [&](int rows) {
    return static_cast<int>(ceil_div(count_runs(rows), most_blocks)) * rows;
  };
  const int least = rows_of_block(kTile);
  params.plan = plan_for(products.T, products.K, least, shared_bytes);
  products.row_octets = params.plan.piece_stride;
  int rows = params.plan.tile_rows;
  while (rows > kTile && rows_of_block(rows) * 100 > least * 103) rows /= 2;
  params.plan.run_rows = rows;
  params.plan.runs_of_tile = params.plan.tile_rows / rows;
  products.num_tiles = count_runs(rows);
  return static_cast<unsigned>(std::min(most_blocks, products.num_tiles));
}

template <quant::Code kCode>
Status launch_code(CudaContext& context, Prologue prologue, const Params& params) {
  const device::CudaProperties& gpu = context.gpu.properties();
  ByteParams all{.products = params};
  // With one row of x two blocks fit on a multiprocessor. That is used if each then has at least 32
  // rows, because each converts all of x to bytes, and if the rows can be divided as evenly.
  const int once = gpu.num_multiprocessors;
  const int64_t of_one = ceil_div(params.num_tiles, once),
                of_two = ceil_div(params.num_tiles, 2 * once);
  const bool twice = params.T == 1 && of_two >= 4 && of_two * 2 * 100 <= of_one * 104;
  const unsigned grid = deal_out(all, twice ? 2 * once : once, gpu.shared_bytes);
  for (size_t i = 0; i < kParts; ++i) {
    const Part& part = params.parts[i];
    if (part.packed.codes == nullptr) continue;
    const auto rows_per_scale = static_cast<uint32_t>(part.packed.rows_per_scale);
    all.scale_shifts[i] =
        std::has_single_bit(rows_per_scale) ? std::countr_zero(rows_per_scale) : -1;
    const TensorView codes(const_cast<uint8_t*>(part.packed.codes), DType::kBf16,
                           Shape{part.N, part.packed.code_bytes / 2});
    HEDDLE_RETURN_IF_ERROR(sm90::map_boxes(codes, all.plan.run_rows, all.codes[i]));
  }
  const auto launch_for = [&]<Prologue kPrologue>() {
    if (params.T == 1) return launch_form_of_bytes<1, kPrologue, kCode>(context, all, grid);
    if (params.T <= 8) return launch_form_of_bytes<8, kPrologue, kCode>(context, all, grid);
    return launch_form_of_bytes<16, kPrologue, kCode>(context, all, grid);
  };
  if (prologue == Prologue::kGate) {
    return launch_form_of_bytes<1, Prologue::kGate, kCode>(context, all, grid);
  }
  return prologue == Prologue::kNorm ? launch_for.template operator()<Prologue::kNorm>()
                                     : launch_for.template operator()<Prologue::kNone>();
}

}  // namespace

bool bytes_fit(const CudaContext& context, int64_t T, int64_t K) {
  if (context.gpu.properties().major != 9 || T > kSkinnyRows) return false;
  return plan_for(static_cast<int>(T), static_cast<int>(K), kMostRows,
                  context.gpu.properties().shared_bytes)
             .depth > 0;
}

Status launch_bytes(CudaContext& context, quant::Code code, Prologue prologue,
                    const Params& params) {
  return code == quant::Code::kU8 ? launch_code<quant::Code::kU8>(context, prologue, params)
                                  : launch_code<quant::Code::kE4M3>(context, prologue, params);
}

}  // namespace heddle::ops::skinny
