// SPDX-License-Identifier: Apache-2.0
// The kernel of skinny_product.h, compiled for bf16 weights in skinny_product.cu and for quantised
// ones in skinny_product_{e4m3,u8,u4}.cu.
//
// y = x W^T for up to 16 rows of x. A group of warps computes tiles of eight columns of y (rows of
// W) with the rows of x in its block's shared memory: each warp processes a part of K, and the
// warps' sums are added in order. A lane loads 16 bytes of one of the tile's rows at a time: 8
// numbers in bf16, 16 codes of 8 bits or 32 of 4. They become operands of a tensor core without
// being rearranged, because the numbers of x are read in the matching order.
//
// The bits of E4M3 are used as bits of bf16, in the same positions. That gives 2^-120 of the
// number, because the exponents' biases are 7 and 127. x is multiplied by 2^80 and the sum by the
// missing 2^40, so that no product from 2^-86 on is too small for fp32, and no x below 2^47 too
// large for bf16. Products of 64 columns (a unit) are summed in fp32, and the sum is multiplied by
// their scale. A unit's scales and zero points are loaded with its batch of codes, each lane those
// of its own row, and exchanged by shuffles.
//
// Integer codes are not converted: tensor cores multiply bytes, too. x becomes integers of 16 bits,
// each two signed bytes, which are two rows of the product. In every unit the largest x has 15
// bits, so that bf16 numbers down to 2^-7 of it are exact, and the last bit is worth 2^-15 of it.
// The unit's sums, zero points included, are exact in 32 bits; they become fp32 when they are
// multiplied by their scale.
//
// Bytes: the weight once, scales included; x again for each block, from the second-level cache.
// Only instructions can still be saved. Measured on an H200 for 12,288 x 2,048 and the LM
// head's 151,936 x 2,048 with one row: E4M3 12.0 and 119 us (floors 5.9 and 73), bf16 14.4 and 144
// (11.9 and 147). The first shape in 4 bits 10.3 (3.2), or 11.7 with codes converted to bf16; with
// sixteen rows 17.3 and 14.8. Variants that were measured and are slower, or faster for one of the
// shapes only: groups of eight warps (E4M3 12.9 and 143 us); codes widened in the order of their
// columns (14.0 and 143); x in fp16, of which the GPU makes two from E4M3 at once (11.5 and 99, but
// scaling rows of x to fp16's range costs 1 us in each product: 7.3 instead of 6.5 us for 2,048 x
// 4,096).
#pragma once

#include <algorithm>
#include <bit>

#include "ops/cuda/integer_octet.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/packed_rows.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/cuda/warp_matrix.cuh"
#include "ops/elementwise/element.cuh"
#include "ops/gemm/skinny_product.h"
#include "ops/norm/norm_row.cuh"

namespace heddle::ops::skinny {

inline constexpr int kWarps = 8;  // warps of a team, which fills rows of x together
inline constexpr int kFillThreads = kWarps * kWarp;
inline constexpr int kTile = 8;   // columns of y that a group computes together
inline constexpr int kUnit = 64;  // fewest columns of K that share a scale
// Most bytes of shared memory that a block has in addition to x.
inline constexpr int64_t kOwnShared = 17 << 10;
inline constexpr size_t kParts = 4;  // most parts of all products together

// Consecutive columns of one y whose weight rows have the same storage format.
struct Part {
  const CudaBf16* weight;  // null: quantised; then all parts of the launch are
  int64_t weight_stride;
  PackedSource packed;
  const float* bias;  // null: no bias
  TargetRows y;
  CudaBf16* residual;  // residual that y is added to; null: y is written
  int N, first_tile;
};

struct Norm {
  const float* weight;
  CudaBf16* y;
  int64_t y_stride;
  float epsilon;
};

// The op that computes a single row of x: x * sigmoid(b), or silu(x) * b.
struct Gate {
  const CudaBf16* b;
  ElementwiseKind kind;
};

enum class Prologue { kNone, kNorm, kGate };

struct Params {
  const CudaBf16* x;
  Part parts[kParts];  // entries from num_parts on begin at num_tiles, after the last tile
  Norm norm;
  Gate gate;
  int64_t residual_stride, x_stride;
  int T, K;
  // Distance in octets between rows of x in shared memory, or between pieces (InPieces).
  int row_octets;
  int num_tiles;  // number of column tiles of all parts

  [[nodiscard]] const __device__ Part& part_of(int tile) const {
    int part = 0;
#pragma unroll
    for (int i = 1; i < static_cast<int>(kParts); ++i) part += tile >= parts[i].first_tile ? 1 : 0;
    return parts[part];
  }

  [[nodiscard]] const __device__ PackedSource& source_of(int tile) const {
    return part_of(tile).packed;
  }

  // The weight row, counted within its part, that is column `column` of a tile.
  [[nodiscard]] __device__ int row_of(int tile, int column) const {
    const Part& part = part_of(tile);
    return min((tile - part.first_tile) * kTile + column, part.N - 1);
  }
};

// Sizes of the kernel for at most kRows rows of x. For one row a block has eight warps and a
// multiprocessor two blocks, so that blocks of the next kernel can start when the first block has
// ended. For more rows a block has sixteen warps that share one copy of x per multiprocessor. A
// team of eight warps fills rows together.
template <int kRows>
struct Form {
  static constexpr int kTeams = kRows == 1 ? 1 : 2;  // teams of eight warps
  static constexpr int kThreads = kTeams * kFillThreads;
  static constexpr int kBlocks = 2 / kTeams;          // blocks per multiprocessor
  static constexpr int kHalves = kRows <= 8 ? 1 : 2;  // groups of eight rows of x
  // Rows that a team normalises at the same time.
  static constexpr int kAtOnce = kRows <= 8 ? kRows / kTeams : 4;

  int team = static_cast<int>(threadIdx.x) / kFillThreads;
  int thread = static_cast<int>(threadIdx.x) % kFillThreads;

  // As __syncthreads(), for the threads of a team.
  __device__ void synchronize() const {
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kFillThreads) : "memory");
  }
};

// The group of warps that a thread computes tiles with.
template <int kRows, typename Weights>
struct Group {
  static constexpr int kThreads = Weights::kTileWarps * kWarp;
  static constexpr int kGroups = Form<kRows>::kThreads / kThreads;

  int group = static_cast<int>(threadIdx.x) / kThreads;
  int thread = static_cast<int>(threadIdx.x) % kThreads;

  // The first tile of the group, and the distance to its next tile.
  [[nodiscard]] __device__ int first_tile() const {
    return static_cast<int>(blockIdx.x + group * gridDim.x);
  }

  [[nodiscard]] static __device__ int tile_stride() {
    return kGroups * static_cast<int>(gridDim.x);
  }

  __device__ void synchronize() const {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kThreads) : "memory");
  }
};

// bf16 weights. `kBatch` loads of 16 bytes form a batch, and kDepth batches are in flight at any
// time.
struct PlainCodes {
  static constexpr bool kPacked = false, kFourBits = false, kIntegers = false;
  static constexpr int kTileWarps = 8;  // warps per group
  static constexpr int kBatch = 8, kDepth = 2;
  // Units of 64 columns in 64 bytes of a row, which four lanes load; 0: not used.
  static constexpr int kUnits = 0;
  // Octets between the end of a row of x and the next row; they spread rows over the banks of
  // shared memory.
  static constexpr int kPadding = 4;

  static constexpr int64_t padded_octets(int64_t K) { return K / kOctet; }
};

__device__ inline uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  uint32_t product;
  // A product of pairs as a fused multiply-add of -0, which does not change its bits.
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}

// Quantised weights. 64 bytes of a row, 16 in each of four lanes, contain the codes of `kUnits`
// units of 64 columns.
template <quant::Code kCode>
struct Codes {
  static constexpr bool kPacked = true;
  static constexpr bool kSigned = kCode == quant::Code::kE2M1;
  static constexpr bool kFourBits = kCode == quant::Code::kU4 || kSigned;
  static constexpr bool kIntegers = kCode != quant::Code::kE4M3;
  static constexpr bool kZeros = kIntegers && !kSigned;  // true: the weights have zero points
  static constexpr int kGroups = kSigned ? 2 : 1;        // scale groups in a unit
  static constexpr int kTileWarps = 4;
  static constexpr int kBatch = 4, kDepth = 3;
  static constexpr int kUnits = kFourBits ? 2 : 1;
  // Odd for E4M3, because lanes read every other octet of a row.
  static constexpr int kPadding = kIntegers ? 4 : 5;

  // Octets of a row of x, rounded up to the end of the last line of codes.
  static __host__ __device__ constexpr int64_t padded_octets(int64_t K) {
    return ceil_div(K, kUnit * kUnits) * kUnits * (kUnit / kOctet);
  }

  // x is multiplied by kFactor; the number that a code is used as must be multiplied by kMissing.
  static constexpr float kFactor = kIntegers ? 1.0f : 0x1p80f;
  static constexpr float kMissing = kSigned ? 0.5f : kIntegers ? 1.0f : 0x1p120f;

  // Extracts the codes of a word as bytes, four for each unit. For E2M1 they are two times the
  // number, signed.
  static __device__ void spread(uint32_t word, uint32_t (&bytes)[kUnits]) {
    if constexpr (kSigned) {
      const uint32_t sizes = word & 0x77777777u;
      // Moves the sign bits of one unit to the top bits of bytes.
      const uint32_t high_signs = word << 4;
      uint32_t both[2];  // columns 0, 0, 1, 1 of the two units, and columns 2, 2, 3, 3
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t selector = sizes >> (16 * i);
        const uint32_t positive = __byte_perm(0x03020100u, 0x0c080604u, selector);
        const uint32_t negative = __byte_perm(0xfdfeff00u, 0xf4f8fafcu, selector);
        const uint32_t is_negative = repeat_signs(high_signs, word, i == 0 ? 0xd9c8 : 0xfbea);
        both[i] = (positive & ~is_negative) | (negative & is_negative);
      }
      bytes[0] = __byte_perm(both[0], both[1], 0x6420);
      bytes[1] = __byte_perm(both[0], both[1], 0x7531);
    } else if constexpr (kFourBits) {
      bytes[0] = word & 0x0f0f0f0fu;
      bytes[1] = (word >> 4) & 0x0f0f0f0fu;
    } else {
      bytes[0] = word;
    }
  }

  // Turns four codes of E4M3 into two pairs of bf16: columns 0 and 2, and columns 1 and 3.
  static __device__ void widen(uint32_t word, uint32_t (&pairs)[2]) {
    pairs[0] = ((word << 4) & 0x07f007f0u) | ((word << 8) & 0x80008000u);
    pairs[1] = ((word >> 4) & 0x07f007f0u) | (word & 0x80008000u);
  }

 private:
  // Returns bytes of all ones or all zeros: copies of the top bits of the bytes that `selector`
  // chooses. The highest bit of each digit of `selector` must be set.
  static __device__ uint32_t repeat_signs(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t signs;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(signs) : "r"(low), "r"(high), "r"(selector));
    return signs;
  }
};

// The part of K that a warp processes, counted in lines. A line is 64 bytes of a weight row, which
// four lanes load, 16 bytes each. The last warp may have fewer.
template <typename Weights>
struct WarpLines {
  int num;  // number of warps that share K
  int own;

  template <bool kWhole>
  static __device__ WarpLines of(int K, int warp) {
    constexpr int kColumns = Weights::kPacked ? kUnit * Weights::kUnits : 4 * kOctet;
    const int lines = (K + kColumns - 1) / kColumns;
    const int num = (lines + Weights::kTileWarps - 1) / Weights::kTileWarps;
    return {num, kWhole ? num : min(num, max(0, lines - warp * num))};
  }
};

// Layout of x in shared memory, row by row: returns the index of octet i of row r.
struct InRows {
  static __device__ int place(const Params& p, int r, int i) { return r * p.row_octets + i; }
};

// Layout of x in shared memory by pieces: a piece has two octets of each row, and pieces are
// row_octets apart.
struct InPieces {
  static __device__ int place(const Params& p, int r, int i) {
    return i / 2 * p.row_octets + r * 2 + i % 2;
  }
};

// Fills shared memory with the rows of x: teams process rows in turn, the threads of a team the
// octets of a row. The constructor does what does not depend on the output of an earlier kernel.
template <int kRows, Prologue kPrologue, typename Layout = InRows>
struct RowsOfX : Form<kRows> {
  __device__ explicit RowsOfX(const Params& /*p*/) {}

  __device__ void fill(const Params& p, uint4* x) const {
    for (int r = this->team; r < p.T; r += this->kTeams) {
      for (int i = this->thread; i < p.K / kOctet; i += kFillThreads) {
        copy_async(x + Layout::place(p, r, i), p.x + r * p.x_stride + i * kOctet, true);
      }
    }
    commit_copies();
    wait_copies<0>();
  }
};

// For one row, gated. All loads of a thread are in flight together.
template <typename Layout>
struct RowsOfX<1, Prologue::kGate, Layout> : Form<1> {
  __device__ explicit RowsOfX(const Params& /*p*/) {}

  __device__ void fill(const Params& p, uint4* x) const {
    if (team > 0) return;
#pragma unroll 2
    for (int i = thread; i < p.K / kOctet; i += kFillThreads) {
      float a[kOctet];
      float b[kOctet];
      load_octet(p.x + i * kOctet, a);
      load_octet(p.gate.b + i * kOctet, b);
#pragma unroll
      for (int j = 0; j < kOctet; ++j) a[j] = element_of(p.gate.kind, a[j], b[j]);
      store_octet(a, reinterpret_cast<CudaBf16*>(x + Layout::place(p, 0, i)));
    }
  }
};

// Rows normalised by the same steps as in rms_norm(), several of a team's rows at the same time.
// Block r % gridDim.x also writes row r to global memory.
template <int kRows, typename Layout>
struct RowsOfX<kRows, Prologue::kNorm, Layout> : Form<kRows> {
  using Form<kRows>::team, Form<kRows>::thread, Form<kRows>::kTeams, Form<kRows>::kAtOnce;

  float weights[kOctet];  // norm weights of the thread's first octet

  __device__ explicit RowsOfX(const Params& p) {
    if (thread < p.K / kOctet) load_octet(p.norm.weight + thread * kOctet, weights);
  }

  __device__ void fill(const Params& p, uint4* x) const {
    for (int first = team; first < p.T; first += kAtOnce * kTeams) fill_from(p, first, x);
  }

 private:
  __device__ void fill_from(const Params& p, int first, uint4* x) const {
    __shared__ float square_sums[kTeams][kAtOnce][kWarps];
    const auto row_of = [&](int k) { return first + k * kTeams; };
    float sums[kAtOnce] = {};
    for (int i = thread; i < p.K / kOctet; i += kFillThreads) {
      uint4 words[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (row_of(k) >= p.T) break;
        words[k] = *reinterpret_cast<const uint4*>(p.x + row_of(k) * p.x_stride + i * kOctet);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (row_of(k) >= p.T) break;
        x[Layout::place(p, row_of(k), i)] = words[k];
        float values[kOctet];
        load_octet(reinterpret_cast<const CudaBf16*>(&words[k]), values);
        add_squares(values, sums[k]);
      }
    }
    this->synchronize();  // the sums of the previous rows have been read
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      sums[k] = warp_sum(sums[k]);
      if (thread % kWarp == 0) square_sums[team][k][thread / kWarp] = sums[k];
    }
    this->synchronize();
    float scales[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      scales[k] = norm_scale(sum_of_warps(square_sums[team][k]), p.K, p.norm.epsilon);
    }
    for (int i = thread; i < p.K / kOctet; i += kFillThreads) {
      float own[kOctet];
      if (i == thread) {
#pragma unroll
        for (int j = 0; j < kOctet; ++j) own[j] = weights[j];
      } else {
        load_octet(p.norm.weight + i * kOctet, own);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int r = row_of(k);
        if (r >= p.T) break;
        auto* const octet = reinterpret_cast<CudaBf16*>(x + Layout::place(p, r, i));
        float values[kOctet];
        float normed[kOctet];
        load_octet(octet, values);
        normalise(values, scales[k], own, normed);
        store_octet(normed, octet);
        if (blockIdx.x == r % gridDim.x) {
          store_octet(normed, p.norm.y + r * p.norm.y_stride + i * kOctet);
        }
      }
    }
  }

  // Sums the warps' results in the order of block_sum().
  static __device__ float sum_of_warps(const float (&v)[kWarps]) {
    static_assert(kWarps == 8);
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
  }
};

// Rearranges an octet of x to the order in which E4M3 codes are widened, and multiplies it by
// kFactor.
template <typename Weights>
__device__ inline uint4 arranged(const uint4& octet) {
  constexpr ScalarTag<CudaBf16> kTag;
  uint32_t words[4] = {octet.x, octet.y, octet.z, octet.w};
  const uint32_t factor = packed(Weights::kFactor, Weights::kFactor, kTag);
#pragma unroll
  for (uint32_t& word : words) word = multiply_pairs(word, factor);
  return make_uint4(
      __byte_perm(words[0], words[1], 0x5410), __byte_perm(words[0], words[1], 0x7632),
      __byte_perm(words[2], words[3], 0x5410), __byte_perm(words[2], words[3], 0x7632));
}

// Describes the integers of x in a unit: a number is its integer times `factor`.
struct UnitOfX {
  float factor;
  int32_t sum;  // sum of the unit's integers
};

// Distance between rows of units: one more than the whole units of K, because the last line of
// codes may contain a part of a unit.
__host__ __device__ constexpr int64_t unit_stride(int64_t K) { return K / kUnit + 1; }

// The units of row t of x; they are stored after the T rows.
template <typename Product>
const __device__ inline UnitOfX* units_of(const Product& p, const uint4* x, int t) {
  return reinterpret_cast<const UnitOfX*>(x + p.T * p.row_octets) + t * unit_stride(p.K);
}

// Stores octet i of row t in the form that codes are multiplied with, at the octet's own place. A
// unit of integers has the high bytes in its first four octets and the low bytes in the other four.
// Lanes of a warp have consecutive octets; those after the end of the row are 0, and those after
// the last line of codes are not stored.
template <typename Weights, typename Product>
__device__ inline void store_arranged(const Product& p, const uint4& octet, int t, int i,
                                      uint4* x) {
  uint4* const row = x + t * p.row_octets;
  const bool real = i < Weights::padded_octets(p.K);
  if constexpr (Weights::kIntegers) {
    const IntegerOctet own = IntegerOctet::of<kUnit / kOctet>(octet);
    int32_t sum = own.sum;
#pragma unroll
    for (int lane = 1; lane < 8; lane *= 2) sum += __shfl_xor_sync(~0u, sum, lane);
    __syncwarp();  // other lanes have read the octets that are overwritten now
    if (!real) return;
    reinterpret_cast<uint2*>(row + i / 8 * 8)[i % 8] = own.high;
    reinterpret_cast<uint2*>(row + i / 8 * 8 + 4)[i % 8] = own.low;
    if (i % 8 == 0) const_cast<UnitOfX*>(units_of(p, x, t))[i / 8] = {own.factor, sum};
  } else if (real) {
    row[i] = arranged<Weights>(octet);
  }
}

// Rearranges all rows; each thread processes the octets that it has filled.
template <int kRows, typename Weights>
__device__ inline void arrange_rows(const Params& p, uint4* x) {
  const Form<kRows> form;
  const int octets = p.K / kOctet;
  for (int t = form.team; t < p.T; t += Form<kRows>::kTeams) {
    for (int i = form.thread; i / kWarp * kWarp < Weights::padded_octets(p.K); i += kFillThreads) {
      store_arranged<Weights>(p, i < octets ? x[t * p.row_octets + i] : uint4{}, t, i, x);
    }
  }
}

template <typename Weights>
struct Batch {
  uint4 words[Weights::kBatch];
};

template <quant::Code kCode>
struct Batch<Codes<kCode>> {
  using Own = Codes<kCode>;
  // Quads of units in a batch; one lane of four has the scales of each unit.
  static constexpr int kQuads = Own::kBatch * Own::kUnits / 4;
  uint4 words[Own::kBatch];
  uint32_t scales[kQuads];  // in the stored format: lane l has row l / 4 of unit l % 4 of each quad
  uint32_t zeros[kQuads];   // zero points, likewise; only if the weights have some
};

// Loads the weights of a group's tiles from memory: a lane loads 16 bytes of one row of a tile, in
// every line of its warp's part of K.
template <bool kWhole, typename Weights, typename Product>
class WeightStream {
 public:
  // Loads tiles first, first + stride, ...; `warp` is the index of the warp in its group.
  __device__ WeightStream(const Product& p, int first, int stride, int warp)
      : p_(p),
        lines_(WarpLines<Weights>::template of<kWhole>(p.K, warp)),
        stride_(stride),
        warp_(warp),
        tile_(first) {
    if (tile_ < p.num_tiles) seek();
  }

  __device__ void load(Batch<Weights>& batch) {
    if (tile_ >= p_.num_tiles) return;
#pragma unroll
    for (int i = 0; i < Weights::kBatch; ++i) {
      if (first_ + i < lines_.own) batch.words[i] = __ldcs(from_ + (first_ + i) * 4);
    }
    if constexpr (Weights::kPacked) load_scales(batch);
    first_ += Weights::kBatch;
    if (first_ < lines_.num) return;
    first_ = 0;
    tile_ += stride_;
    if (tile_ < p_.num_tiles) seek();
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

  __device__ void seek() {
    const int row = p_.row_of(tile_, lane() / 4);
    const uint4* from;
    if constexpr (Weights::kPacked) {
      const PackedSource& packed = p_.source_of(tile_);
      from = reinterpret_cast<const uint4*>(packed.codes + row * packed.code_bytes);
      const int scale_row = packed.rows_per_scale == 1
                                ? row
                                : (packed.first_scale_rows + row) / packed.rows_per_scale;
      scales_ = packed.scales + scale_row * packed.scale_bytes;
      wide_scales_ = packed.scale_type == quant::ScaleType::kF32;
      group_shift_ = packed.group_shift;
      if constexpr (Weights::kZeros) {
        zeros_ = packed.zeros == nullptr ? nullptr : packed.zeros + row * packed.num_groups;
        zero_ = static_cast<uint32_t>(packed.constant_zero);
      }
    } else {
      const Part& part = p_.part_of(tile_);
      from = reinterpret_cast<const uint4*>(part.weight + row * part.weight_stride);
    }
    from_ = from + warp_ * lines_.num * 4 + lane() % 4;
  }

  __device__ void load_scales(Batch<Weights>& batch) const {
#pragma unroll
    for (int quad = 0; quad < Batch<Weights>::kQuads; ++quad) {
      const int column =
          ((warp_ * lines_.num + first_) * Weights::kUnits + quad * 4 + lane() % 4) * kUnit;
      const int group = min(column, p_.K - 1) >> group_shift_;
      // The loaded values must not be used here: that would wait for the load.
      if constexpr (Weights::kGroups == 2) {
        batch.scales[quad] =
            reinterpret_cast<const uint16_t*>(scales_)[min(column, p_.K - 1) / kUnit];
        continue;
      }
      if (wide_scales_) {
        batch.scales[quad] = reinterpret_cast<const uint32_t*>(scales_)[group];
      } else {
        batch.scales[quad] = reinterpret_cast<const uint16_t*>(scales_)[group];
      }
      if constexpr (Weights::kZeros) {
        batch.zeros[quad] = zeros_ == nullptr ? zero_ : zeros_[group];
      }
    }
  }

  const Product& p_;
  const WarpLines<Weights> lines_;
  const int stride_, warp_;
  int tile_, first_ = 0;
  const uint4* from_ = nullptr;
  const uint8_t* scales_ = nullptr;  // scales of the weight row that the lane loads
  const uint8_t* zeros_ = nullptr;   // zero points of that row; null: all are zero_
  uint32_t zero_ = 0;
  int group_shift_ = 0;
  bool wide_scales_ = true;
};

// An element of y that a thread stores. Its bias or residual is loaded when the tile begins, before
// the weights of the next tile are loaded.
class Element {
 public:
  __device__ Element(const Params& p, int t, int tile, int column) : t_(t) {
    part_ = &p.part_of(tile);
    n_ = (tile - part_->first_tile) * kTile + column;
    real_ = tile < p.num_tiles && t < p.T && n_ < part_->N;
    if (!real_) return;
    if (part_->bias != nullptr) bias_ = part_->bias[n_];
    if (part_->residual != nullptr) {
      residual_ = part_->residual + t * p.residual_stride + n_;
      before_ = *residual_;
    }
  }

  [[nodiscard]] __device__ bool real() const { return real_; }

  // `sum_of(i)` returns the sum over K of the column i after this one.
  template <typename SumOf>
  __device__ void store(const SumOf& sum_of) const {
    const float sum = sum_of(0) + bias_;
    if (residual_ != nullptr) {
      *residual_ = rounded<CudaBf16>(as_float(before_) + as_float(rounded<CudaBf16>(sum)));
    } else {
      part_->y.store_one(t_, n_, sum);
    }
  }

 private:
  const Part* part_ = nullptr;
  CudaBf16* residual_ = nullptr;
  int t_, n_;
  float bias_ = 0;
  CudaBf16 before_{};
  bool real_;
};

// A warp's sums over its part of K for a tile. A lane has rows lane / 4 and lane / 4 + 8 of x,
// columns 2 * (lane % 4) and the next.
template <int kHalves, bool kWhole, typename Weights, typename Product>
class WarpSums {
 public:
  __device__ WarpSums(const Product& p, const uint4* x, int warp)
      : p_(p), lines_(WarpLines<Weights>::template of<kWhole>(p.K, warp)) {
    const int octets = Weights::kPacked ? 8 * Weights::kUnits : 4;  // octets of x per line of codes
    const int own = lane() % 4 * (Weights::kPacked && !kIntegers ? 2 : 1);
    const auto row = [&](int r) {
      return x + min(r, p.T - 1) * p.row_octets + warp * lines_.num * octets + own;
    };
    low_ = row(lane() / 4);
    high_ = row(lane() / 4 + 8);
    if constexpr (kIntegers) {
      const auto units = [&](int r) {
        return units_of(p, x, min(r, p.T - 1)) + warp * lines_.num * Weights::kUnits;
      };
      units_[0] = units(lane() / 4);
      units_[1] = units(lane() / 4 + 8);
    }
  }

  __device__ void begin(int tile) {
    if constexpr (Weights::kPacked) scale_type_ = p_.source_of(tile).scale_type;
    first_ = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) sums_[0][i] = sums_[1][i] = 0;
  }

  __device__ void add(const Batch<Weights>& batch) {
#pragma unroll
    for (int i = 0; i < Weights::kBatch; ++i) {
      if (first_ + i >= lines_.own) break;
      if constexpr (kIntegers) {
        add_integers(batch, i);
      } else if constexpr (Weights::kPacked) {
        add_line(batch, i);
      } else {
        const uint4 a = low_[(first_ + i) * 4];
        const uint4 b = kHalves == 2 ? high_[(first_ + i) * 4] : uint4{};
        const uint4 w = batch.words[i];
        multiply_bf16(sums_[0], {a.x, b.x, a.y, b.y}, {w.x, w.y});
        multiply_bf16(sums_[1], {a.z, b.z, a.w, b.w}, {w.z, w.w});
      }
    }
    first_ += Weights::kBatch;
  }

  [[nodiscard]] __device__ bool whole() const { return first_ >= lines_.num; }

  __device__ void store(float (&shared)[kHalves * 8][kTile]) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      float* to = &shared[half * 8 + lane() / 4][lane() % 4 * 2];
      to[0] = sums_[0][half * 2] + sums_[1][half * 2];
      to[1] = sums_[0][half * 2 + 1] + sums_[1][half * 2 + 1];
    }
  }

 private:
  static constexpr bool kIntegers = Weights::kIntegers;

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

  [[nodiscard]] __device__ float scale_of(uint32_t scale) const {
    if (scale_type_ == quant::ScaleType::kF32) return __uint_as_float(scale);
    if (scale_type_ == quant::ScaleType::kBf16) return __uint_as_float(scale << 16);
    return __half2float(__ushort_as_half(static_cast<uint16_t>(scale)));
  }

  // The lane that has loaded the scale and zero point of a unit for the j-th of this lane's two
  // columns of the tile.
  static __device__ int lane_of(int j, int unit_of_quad) {
    return lane() % 4 * 8 + j * 4 + unit_of_quad;
  }

  __device__ void add_line(const Batch<Weights>& batch, int i) {
    const uint4 line = batch.words[i];
    const uint32_t words[4] = {line.x, line.y, line.z, line.w};
    const int octet = (first_ + i) * 8;
    float products[2][4] = {};
#pragma unroll
    for (int o = 0; o < 2; ++o) {
      const uint4 a = low_[octet + o];
      const uint4 b = kHalves == 2 ? high_[octet + o] : uint4{};
      uint32_t w[2];
      Weights::widen(words[2 * o], w);
      multiply_bf16(products[0], {a.x, b.x, a.y, b.y}, w);
      Weights::widen(words[2 * o + 1], w);
      multiply_bf16(products[1], {a.z, b.z, a.w, b.w}, w);
    }
    float scales[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      scales[j] = scale_of(__shfl_sync(~0u, batch.scales[i / 4], lane_of(j, i % 4)));
    }
#pragma unroll
    for (int j = 0; j < 2 * kHalves; ++j) {
      sums_[0][j] = fmaf(products[0][j] + products[1][j], scales[j % 2], sums_[0][j]);
    }
  }

  // The 16 rows of a product are the high bytes of eight rows of x, and the low bytes of these
  // rows.
  __device__ void add_integers(const Batch<Weights>& batch, int i) {
    constexpr int kUnits = Weights::kUnits, kGroups = Weights::kGroups;
    const uint4 line = batch.words[i];
    const uint32_t words[4] = {line.x, line.y, line.z, line.w};
    uint32_t codes[4][kUnits];
#pragma unroll
    for (int w = 0; w < 4; ++w) Weights::spread(words[w], codes[w]);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int unit = (first_ + i) * kUnits + u;
      const int quad = (i * kUnits + u) / 4;
      const int of_quad = (i * kUnits + u) % 4;
      uint32_t scales[2];
      int32_t zeros[2] = {};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        scales[j] = __shfl_sync(~0u, batch.scales[quad], lane_of(j, of_quad));
        if constexpr (Weights::kZeros) {
          zeros[j] = static_cast<int32_t>(__shfl_sync(~0u, batch.zeros[quad], lane_of(j, of_quad)));
        }
      }
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const uint4* const x = half == 0 ? low_ : high_;
        const uint4 a = x[unit * 8];
        const uint4 b = x[unit * 8 + 4];
        const UnitOfX of_x = units_[half][unit];
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          // Of four lanes, the first two have the columns of the unit's first scale group.
          const bool counts = kGroups == 1 || lane() % 4 / 2 == group;
          const auto code = [&](int w) { return counts ? codes[w][u] : 0; };
          int32_t products[4] = {};
          multiply_bytes<Weights::kSigned>(products, {a.x, b.x, a.y, b.y}, {code(0), code(1)});
          multiply_bytes<Weights::kSigned>(products, {a.z, b.z, a.w, b.w}, {code(2), code(3)});
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const float scale = kGroups == 1
                                    ? scale_of(scales[j])
                                    : PackedSource::scale_of(quant::ScaleType::kE8M0,
                                                             (scales[j] >> (8 * group)) & 255);
            const int32_t sum = products[j] * 256 + products[j + 2] - zeros[j] * of_x.sum;
            float& total = sums_[0][half * 2 + j];
            total = fmaf(static_cast<float>(sum), scale * of_x.factor, total);
          }
        }
      }
    }
  }

  const Product& p_;
  const WarpLines<Weights> lines_;
  const uint4* low_;
  const uint4* high_;
  const UnitOfX* units_[2];  // units of the integers of x, for each half of the rows
  int first_ = 0;
  quant::ScaleType scale_type_{};
  float sums_[2][4];
};

// Number of batches in flight. With more than eight rows their sums need the registers of one
// batch, and so do the rows that a norm loads together if there are zero points.
template <int kHalves, typename Weights, bool kNorm = false>
__device__ constexpr int depth_of() {
  if constexpr (Weights::kPacked) {
    if (kHalves > 1 || (kNorm && Weights::kZeros)) return Weights::kDepth - 1;
  }
  return Weights::kDepth;
}

// Whether weights are MXFP4, whose scale groups are halves of units.
inline bool reads_mxfp4(const quant::RowFormat& format) {
  return format.code == quant::Code::kE2M1 && format.scale == quant::ScaleType::kE8M0 &&
         format.group_index == nullptr && format.group_size == kUnit / 2 && format.K > 0 &&
         format.K % kUnit == 0;
}

// Whether Codes<> has a kernel for weights of this format other than MXFP4.
inline bool reads(const quant::RowFormat& format) {
  const bool served = format.code != quant::Code::kE2M1 &&
                      format.scale != quant::ScaleType::kE8M0 && format.group_index == nullptr;
  const auto group_size = static_cast<uint64_t>(format.group_size);
  return served && format.K > 0 && format.K % kUnit == 0 &&
         (format.num_groups() == 1 || (group_size >= kUnit && std::has_single_bit(group_size)));
}

// Describes a weight of a supported format for the kernel.
inline PackedSource source_of(const quant::PackedRows& rows) {
  PackedSource source = PackedSource::of(rows);
  // With a single group all columns must be in group 0.
  if (source.num_groups == 1) source.group_shift = 31;
  return source;
}

// Computes the tiles of a group of warps: `tile` and then every `stride`-th one. The first batches
// of weights must have been loaded. `element` is the thread's element of the first tile; the
// elements of the other tiles are constructed from the product, the thread's row of x, the tile and
// the column. Their store() gets a function i -> sum over K of the column i after the element's.
template <int kHalves, bool kWhole, typename Weights, typename Product, typename Group,
          typename Element, int kDepth>
__device__ inline void multiply_tiles(
    const Product& p, const Group& own, const uint4* x, int tile, int stride,
    WeightStream<kWhole, Weights, Product>& weights, Batch<Weights> (&batches)[kDepth],
    float (&partial_sums)[2][Weights::kTileWarps][kHalves * 8][kTile], Element element) {
  const int warp = own.thread / kWarp;
  const int t = own.thread / kTile;
  const int column = own.thread % kTile;
  WarpSums<kHalves, kWhole, Weights, Product> sums(p, x, warp);
  sums.begin(tile);
  int buffer = 0;
  // Multiplies a batch and then loads another one into its registers; false after the last tile.
  const auto take = [&](Batch<Weights>& batch) {
    sums.add(batch);
    weights.load(batch);
    if (!sums.whole()) return true;
    auto& shared = partial_sums[buffer];
    sums.store(shared[warp]);
    own.synchronize();
    if (element.real()) {
      element.store([&](int behind) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < Weights::kTileWarps; ++w) sum += shared[w][t][column + behind];
        if constexpr (Weights::kPacked) sum *= Weights::kMissing / Weights::kFactor;
        return sum;
      });
    }
    tile += stride;
    if (tile >= p.num_tiles) return false;
    element = Element(p, t, tile, column);
    buffer = 1 - buffer;  // other threads may still add the sums of this tile
    sums.begin(tile);
    return true;
  };
  for (bool more = true; more;) {
#pragma unroll
    for (Batch<Weights>& batch : batches) {
      if (more) more = take(batch);
    }
  }
}

template <int kRows, Prologue kPrologue, bool kWhole, typename Weights>
__global__ void __launch_bounds__(Form<kRows>::kThreads, Form<kRows>::kBlocks)
    skinny_kernel(const __grid_constant__ Params p) {
  using Own = Group<kRows, Weights>;
  constexpr int kHalves = Form<kRows>::kHalves;
  extern __shared__ uint4 x[];  // rows of x: [T, row_octets]
  __shared__ float partial_sums[Own::kGroups][2][Weights::kTileWarps][kHalves * 8][kTile];
  static_assert(sizeof(partial_sums) + (1 << 10) <= kOwnShared, "and what a prologue has");
  const RowsOfX<kRows, kPrologue> rows(p);
  const Own own;
  const int tile = own.first_tile();
  const int stride = Own::tile_stride();

  WeightStream<kWhole, Weights, Params> weights(p, tile, stride, own.thread / kWarp);
  constexpr bool kNormsRows = kRows > 1 && kPrologue == Prologue::kNorm;
  Batch<Weights> batches[depth_of<kHalves, Weights, kNormsRows>()];
#pragma unroll
  // Weights are loaded before x is available.
  for (Batch<Weights>& batch : batches) weights.load(batch);
  wait_for_inputs();
  const Element element(p, own.thread / kTile, tile, own.thread % kTile);
  rows.fill(p, x);
  if constexpr (Weights::kPacked) arrange_rows<kRows, Weights>(p, x);
  __syncthreads();
  if (tile >= p.num_tiles) return;
  multiply_tiles<kHalves, kWhole>(p, own, x, tile, stride, weights, batches,
                                  partial_sums[own.group], element);
}

// Bytes of shared memory for T rows of x; rows of integers include their units.
constexpr int64_t bytes_of_x(int64_t T, int64_t row_octets, bool integers) {
  const int64_t units = integers ? unit_stride(row_octets * kOctet) : 0;
  return T * (row_octets * static_cast<int64_t>(sizeof(uint4)) +
              units * static_cast<int64_t>(sizeof(UnitOfX)));
}

// Upper bound of bytes_of_x() for rows of K numbers; rows of integers end with a whole line of
// codes.
constexpr int64_t most_bytes_of_rows(int64_t T, int64_t K, bool integers) {
  constexpr int64_t kMostPadding = 5;
  const int64_t line = integers ? kUnit / kOctet : 0;
  return bytes_of_x(T, K / kOctet + line + kMostPadding, integers);
}

inline int64_t most_bytes_of_x(const CudaContext& context) {
  return context.gpu.properties().shared_bytes - kOwnShared;
}

template <int kRows, Prologue kPrologue, typename Weights>
Status launch_form(CudaContext& context, Params params) {
  constexpr int kStep =
      Weights::kTileWarps * (Weights::kPacked ? Weights::kUnits * kUnit : 4 * kOctet);
  const auto kernel = params.K % kStep == 0 ? skinny_kernel<kRows, kPrologue, true, Weights>
                                            : skinny_kernel<kRows, kPrologue, false, Weights>;
  HEDDLE_RETURN_IF_ERROR(allow_shared(kernel, static_cast<size_t>(most_bytes_of_x(context))));
  const int64_t most = int64_t{Form<kRows>::kBlocks} * context.gpu.properties().num_multiprocessors;
  params.row_octets = static_cast<int>(Weights::padded_octets(params.K)) + Weights::kPadding;
  return launch(context, "linear", kernel, grid_of(std::min<int64_t>(most, params.num_tiles)),
                Form<kRows>::kThreads, params,
                static_cast<size_t>(bytes_of_x(params.T, params.row_octets, Weights::kIntegers)));
}

template <typename Weights>
Status launch_rows(CudaContext& context, Prologue prologue, const Params& params) {
  const auto launch_for = [&]<Prologue kPrologue>() {
    if (params.T == 1) return launch_form<1, kPrologue, Weights>(context, params);
    if constexpr (!Weights::kPacked) {
      if (params.T == 2) return launch_form<2, kPrologue, Weights>(context, params);
    }
    if (params.T <= 8) return launch_form<8, kPrologue, Weights>(context, params);
    return launch_form<16, kPrologue, Weights>(context, params);
  };
  if (prologue == Prologue::kGate) {
    return launch_form<1, Prologue::kGate, Weights>(context, params);
  }
  return prologue == Prologue::kNorm ? launch_for.template operator()<Prologue::kNorm>()
                                     : launch_for.template operator()<Prologue::kNone>();
}

// Launches for quantised weights; each is compiled in a separate file.
Status launch_e4m3(CudaContext& context, Prologue prologue, const Params& params);
Status launch_u8(CudaContext& context, Prologue prologue, const Params& params);
Status launch_u4(CudaContext& context, Prologue prologue, const Params& params);

// For large weights with codes of 8 bits (skinny_bytes_sm90.cu): whether T rows of x fit into
// shared memory, and the launch.
bool bytes_fit(const CudaContext& context, int64_t T, int64_t K);
Status launch_bytes(CudaContext& context, quant::Code code, Prologue prologue,
                    const Params& params);

}  // namespace heddle::ops::skinny
