// SPDX-License-Identifier: Apache-2.0
// The kernels of few_experts.h, compiled for weights in bf16 in few_experts.cu and for quantised
// ones in few_experts_{e4m3,e2m1,u8,u4}.cu.
//
// y[t] = sum over a of weights[t, a] W2_e f(W13_e x[t]), e = experts[t, a]; plus the shared expert.
// A row of blocks (blockIdx.y) computes a token. up_kernel: a warp computes hidden channels of the
// experts, from a row of the gate and one of up, or two channels without a gate; the first warp of
// each block chooses the experts. down_kernel: a warp computes columns of y, for all experts. A
// lane has octets of a weight row. Bytes: 3 * A * I * H weights a token, 2 * A * I * H without a
// gate, from memory once: bound by memory. Instructions: one multiply-add a weight; before it some
// 3 for a code, which take half as long as reading it in 8 bits, and as long in 4 bits. Outside of
// exact mode some 14 for eight integer codes, whose bytes are multiplied with the bytes of x as an
// integer.
#pragma once

#include <algorithm>
#include <type_traits>

#include "ops/cuda/integer_octet.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/packed_rows.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/moe/choose_experts.cuh"
#include "ops/moe/expert_activation.cuh"
#include "ops/moe/few_experts.h"

namespace heddle::ops::few_experts {

inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * kWarp;
inline constexpr int kStep = kWarp * kOctet;  // columns of a weight row that a warp loads at once
// Router scores in each lane of the warp that chooses experts.
inline constexpr int kScoresPerLane = 16;
inline constexpr int64_t kFetchPiece = 4096;  // bytes per prefetch instruction
inline constexpr int64_t kBlocks = 2;         // thread blocks per multiprocessor

// The rows in shared memory that the weights are multiplied with.
struct SharedRows {
  uint4* octets;
  float2* units;  // for integer codes: factor and sum of each octet of integers
};

// Rows in bf16, for weights that are converted to floats.
struct FloatRows {
  static constexpr int kOctetBytes = sizeof(uint4);  // bytes of an octet of x in shared memory

  static __device__ void store(const SharedRows& x, int i, const uint4& octet, bool real) {
    if (real) x.octets[i] = octet;
  }
};

// Adds the products of an octet of a weight with one of x.
__device__ inline void add_products(const float (&w)[kOctet], const uint4& x, float& sum) {
  float values[kOctet];
  load_octet(reinterpret_cast<const CudaBf16*>(&x), values);
#pragma unroll
  for (int j = 0; j < kOctet; ++j) sum = fmaf(values[j], w[j], sum);
}

// Rows of integers (integer_octet.cuh), for integer codes; an octet's high bytes come before its
// low bytes.
struct IntegerRows {
  static constexpr int kOctetBytes = sizeof(uint4) + sizeof(float2);

  // All lanes of a warp must call it, with consecutive octets.
  static __device__ void store(const SharedRows& x, int i, const uint4& octet, bool real) {
    const IntegerOctet own = IntegerOctet::of<8>(octet);
    if (!real) return;
    x.octets[i] = make_uint4(own.high.x, own.high.y, own.low.x, own.low.y);
    x.units[i] = make_float2(own.factor, static_cast<float>(own.sum));
  }
};

// Weights in bf16: of all experts [E, N, K], or of one [N, K].
struct PlainExperts : FloatRows {
  static constexpr bool kPacked = false;

  const CudaBf16* data = nullptr;
  int64_t expert_stride = 0, row_stride = 0;

  static PlainExperts of(const TensorView& weight) {
    const bool one = weight.shape.rank() == 2;
    return {.data = weight.as<CudaBf16>(),
            .expert_stride = one ? 0 : weight.row_stride,
            .row_stride = one ? weight.row_stride : weight.shape[2]};
  }

  using Row = const uint4*;  // pointer to the octets of the row
  using Octet = uint4;

  [[nodiscard]] __device__ Row row(int expert, int n) const {
    return reinterpret_cast<const uint4*>(data + expert * expert_stride + n * row_stride);
  }

  __device__ void load(const Row& row, int octet, Octet& to) const { to = __ldcs(row + octet); }

  // Adds the products of octet number `octet` of a row with octet `at` of x.
  static __device__ void add(const PlainExperts& /*weight*/, const Octet& from, int /*octet*/,
                             const SharedRows& x, int at, float& sum) {
    float values[kOctet];
    load_octet(reinterpret_cast<const CudaBf16*>(&from), values);
    add_products(values, x.octets[at], sum);
  }
};

template <quant::Code kCode>
inline constexpr bool kAreIntegers = kCode == quant::Code::kU4 || kCode == quant::Code::kU8;

// Quantised weights in which the columns of an octet share a scale. The numbers are those of
// PackedRow; products of integer codes are summed before they are scaled.
template <quant::Code kCode>
struct PackedExperts : std::conditional_t<kAreIntegers<kCode>, IntegerRows, FloatRows> {
  static constexpr bool kPacked = true;
  static constexpr bool kFourBits = kCode == quant::Code::kU4 || kCode == quant::Code::kE2M1;
  static constexpr bool kIntegers = kAreIntegers<kCode>;

  PackedSource source;
  int rows_of_expert = 0;
  int scale_row_shift = 0;  // 2^scale_row_shift rows share a row of scales

  static PackedExperts of(const TensorView& weight) {
    if (weight.packed == nullptr) return {};
    const quant::PackedRows& rows = weight.packed->parts[0].packed;
    return {.source = PackedSource::of(rows),
            .rows_of_expert = static_cast<int>(weight.shape[weight.shape.rank() - 2]),
            .scale_row_shift = std::countr_zero(static_cast<uint64_t>(rows.rows_per_scale))};
  }

  struct Row {
    const uint8_t* codes;
    const uint8_t* scales;
    const uint8_t* zeros;  // null: all zero points are the constant
  };

  struct Octet {
    uint2 codes;
    uint32_t scale;  // scale in the stored format
    uint32_t zero;
  };

  [[nodiscard]] __device__ Row row(int expert, int n) const {
    const int row = expert * rows_of_expert + n;
    const int scale_row = (source.first_scale_rows + row) >> scale_row_shift;
    return {source.codes + row * source.code_bytes, source.scales + scale_row * source.scale_bytes,
            source.zeros == nullptr ? nullptr : source.zeros + int64_t{row} * source.num_groups};
  }

  // Must not use the loaded values, because that would wait for the load.
  __device__ void load(const Row& row, int octet, Octet& to) const {
    const int k = octet * kOctet;
    const int at = kFourBits ? k / 128 * 64 + k % 64 : k;
    to.codes = __ldcs(reinterpret_cast<const uint2*>(row.codes + at));
    const int group = source.num_groups == 1 ? 0 : k >> source.group_shift;
    if constexpr (kCode == quant::Code::kE2M1) {
      to.scale = row.scales[group];
    } else if (source.scale_type == quant::ScaleType::kF32) {
      to.scale = reinterpret_cast<const uint32_t*>(row.scales)[group];
    } else {
      to.scale = reinterpret_cast<const uint16_t*>(row.scales)[group];
    }
    if constexpr (kIntegers) to.zero = row.zeros != nullptr ? row.zeros[group] : ~0u;
  }

  // As PlainExperts::add(); `weight` is any weight of the same format.
  static __device__ void add(const PackedExperts& weight, const Octet& from, int octet,
                             const SharedRows& x, int at, float& sum) {
    const PackedSource& source = weight.source;
    uint2 codes = from.codes;
    if constexpr (kFourBits) {
      const int shift = octet * kOctet / 64 % 2 * 4;
      codes = make_uint2((codes.x >> shift) & 0x0f0f0f0fu, (codes.y >> shift) & 0x0f0f0f0fu);
    }
    const float scale = PackedSource::scale_of(
        kCode == quant::Code::kE2M1 ? quant::ScaleType::kE8M0 : source.scale_type, from.scale);
    if constexpr (kIntegers) {
      const float zero = from.zero == ~0u ? source.constant_zero : static_cast<float>(from.zero);
      const uint4 bytes = x.octets[at];
      const float2 unit = x.units[at];
      constexpr float kOnes = 0x1.8p23f;  // floats near it have a last mantissa bit that is worth 1
      const int32_t none = __float_as_int(kOnes);
      const int32_t high =
          add_byte_products(codes.y, bytes.y, add_byte_products(codes.x, bytes.x, none));
      const int32_t low =
          add_byte_products(codes.y, bytes.w, add_byte_products(codes.x, bytes.z, none));
      const float products =
          fmaf(__int_as_float(high) - kOnes, 256.0f, __int_as_float(low) - kOnes);
      sum = fmaf(fmaf(-zero, unit.y, products), scale * unit.x, sum);
    } else {
      float values[kOctet];
      widen_codes<kCode>(codes.x, 0, values);
      widen_codes<kCode>(codes.y, 0, values + 4);
#pragma unroll
      for (int i = 0; i < kOctet; ++i) values[i] = __fmul_rn(values[i], scale);
      add_products(values, x.octets[at], sum);
    }
  }
};

// The shared expert, computed as one more expert of each token.
template <typename Weights>
struct SharedPart {
  bool exists = false;
  SourceRows gate_up;
  Weights down;
  const float* gate = nullptr;  // gate of the shared expert; null: it is not gated
  int64_t gate_stride = 0;
};

// Router scores.
struct Scores {
  const float* logits;  // router logits; null: the experts are given
  int64_t stride;
  int E;
  bool renormalize;
};

template <typename Weights>
struct Params {
  Scores scores;
  const CudaBf16* x;
  Weights w13, w2;
  const float* w13_bias;  // null: no bias
  const float* w2_bias;   // null: no bias
  int32_t* experts;
  float* weights;
  const int32_t* row_sequences;  // sequence of each token; null: no token is padding
  CudaBf16* hidden;
  TargetRows y;
  CudaBf16* residual;  // null: y is written; else y is rounded and added to it
  int64_t x_stride, residual_stride;
  int A, H, I;
  ExpertActivation activation;
  SharedPart<Weights> shared;
  const std::byte* read_next;
  int64_t fetch_bytes;  // bytes of the next product's weight to prefetch
};

template <typename Weights>
__device__ inline bool is_padding(const Params<Weights>& p, int t) {
  return p.row_sequences != nullptr && p.row_sequences[t] < 0;
}

// The warp that has chosen the experts of token t calls it, in one of the token's blocks. It stores
// the experts and their weights for the second product, whose blocks read them before this kernel
// has ended.
template <typename Weights>
__device__ inline void leave_experts(const Params<Weights>& p, int t, ChosenExperts& chosen) {
  weigh_experts(p.scores.logits + t * p.scores.stride, p.scores.E, p.A, p.scores.renormalize,
                chosen);
  __syncwarp();
  for (int a = static_cast<int>(threadIdx.x); a < p.A; a += kWarp) {
    p.experts[t * p.A + a] = chosen.ids[a];
    p.weights[t * p.A + a] = chosen.weights[a];
  }
  __threadfence();
  __syncwarp();  // lane 0 lets the next kernel start after all lanes have stored
}

// Reads the experts that the previous kernel or the first product of this op has chosen.
template <typename Weights>
__device__ inline void read_experts(const Params<Weights>& p, int t, ChosenExperts& chosen) {
  for (int a = static_cast<int>(threadIdx.x); a < p.A; a += kThreads) {
    chosen.ids[a] = __ldcg(p.experts + t * p.A + a);
    chosen.weights[a] = __ldcg(p.weights + t * p.A + a);
  }
}

// Memory is idle while blocks choose experts. Meanwhile each block prefetches a part of the weights
// of the product after the experts into the second-level cache. Blocks of padding skip their part.
template <typename Weights>
__device__ inline void fetch_next(const Params<Weights>& p) {
  const int64_t blocks = int64_t{gridDim.x} * gridDim.y;
  const int64_t block = int64_t{blockIdx.y} * gridDim.x + blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t piece = block + lane * blocks; piece * kFetchPiece < p.fetch_bytes;
       piece += kWarp * blocks) {
    fetch_ahead<kFetchPiece>(p.read_next + piece * kFetchPiece);
  }
}

inline constexpr int kUpSteps = 8;    // steps of two rows that a lane loads together
inline constexpr int kFewTokens = 4;  // most tokens whose experts are awaited in two parts

// A row of blocks computes a token. A warp computes hidden channels of the token's experts: from a
// row of the gate and the same row of up, or from two rows without a gate. The first warp of every
// block chooses the experts, which is faster than waiting for another kernel. For few tokens it
// first chooses the experts of the block's first rows, so that their loads can start, and the
// others meanwhile. All loads of a row are issued at once, and those of the next row before this
// row's sums are reduced. Reads 4 * A * I * H bytes a token, half of that without a gate.
template <typename Weights, bool kWhole, bool kGated>
__global__ void __launch_bounds__(kThreads, kBlocks)
    up_kernel(const __grid_constant__ Params<Weights> p) {
  await_kernel_before();
  extern __shared__ uint4 shared[];
  __shared__ ChosenExperts chosen;
  const int t = static_cast<int>(blockIdx.y);
  if (is_padding(p, t)) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int octets = p.H / kOctet;
  const SharedRows x{shared, reinterpret_cast<float2*>(shared + octets)};
  const int steps = (octets + kWarp - 1) / kWarp;
  const int pairs = kGated ? p.I : p.I / 2;  // pairs of rows per expert
  const int num_pairs = p.A * pairs;
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  const bool chooses = p.scores.logits != nullptr;
  // The last of the pairs that the block computes first.
  const int last_pair = static_cast<int>(blockIdx.x + 1) * kWarps - 1;
  const int num_first = gridDim.y <= kFewTokens ? min(p.A, last_pair / pairs + 1) : p.A;
  ExpertChoice<kScoresPerLane> choice;
  if (!chooses) {
    read_experts(p, t, chosen);
  } else if (warp == 0) {
    choice.begin(p.scores.logits + t * p.scores.stride, p.scores.E);
    choice.choose_until(num_first, chosen);
  }
  if (warp == kWarps - 1) fetch_next(p);
  if (warp > 0) {  // while the first warp chooses experts
    const auto* own = reinterpret_cast<const uint4*>(p.x + t * p.x_stride);
    for (int i = static_cast<int>(threadIdx.x) - kWarp; i / kWarp * kWarp < octets;
         i += kThreads - kWarp) {
      Weights::store(x, i, i < octets ? own[i] : uint4{}, i < octets);
    }
  }
  __syncthreads();
  // Whether the lane has no octet in this step, which can only be in the last step.
  const auto is_behind = [&](int step) { return !kWhole && step * kWarp + lane >= octets; };
  typename Weights::Octet first_row[kUpSteps];
  typename Weights::Octet second_row[kUpSteps];
  const auto load = [&](int n, int first_step) {
    const int expert = chosen.ids[n / pairs];
    const int at = kGated ? n % pairs : 2 * (n % pairs);
    const typename Weights::Row firsts = p.w13.row(expert, at);
    const typename Weights::Row seconds = p.w13.row(expert, kGated ? p.I + at : at + 1);
#pragma unroll
    for (int i = 0; i < kUpSteps; ++i) {
      if (first_step + i >= steps || is_behind(first_step + i)) break;
      p.w13.load(firsts, (first_step + i) * kWarp + lane, first_row[i]);
      p.w13.load(seconds, (first_step + i) * kWarp + lane, second_row[i]);
    }
  };
  int n = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (n < num_pairs) load(n, 0);
  if (chooses && num_first < p.A) {
    if (warp == 0) choice.choose_until(p.A, chosen);
    __syncthreads();
  }
  const bool leaves = chooses && blockIdx.x == 0;
  if (leaves && warp == 0) leave_experts(p, t, chosen);
  if (!leaves || warp == 0) let_next_kernel_start();
  while (n < num_pairs) {
    float first_sum = 0;
    float second_sum = 0;
    const int next = n + stride;
    for (int first = 0; first < steps; first += kUpSteps) {
#pragma unroll
      for (int i = 0; i < kUpSteps; ++i) {
        if (first + i >= steps || is_behind(first + i)) break;
        const int octet = (first + i) * kWarp + lane;
        Weights::add(p.w13, first_row[i], octet, x, octet, first_sum);
        Weights::add(p.w13, second_row[i], octet, x, octet, second_sum);
      }
      if (first + kUpSteps < steps) {
        load(n, first + kUpSteps);
      } else if (next < num_pairs) {
        load(next, 0);
      }
    }
    first_sum = warp_sum(first_sum);
    second_sum = warp_sum(second_sum);
    if (lane == 0) {
      const int at = kGated ? n % pairs : 2 * (n % pairs);
      if (p.w13_bias != nullptr) {
        const float* bias = p.w13_bias + int64_t{chosen.ids[n / pairs]} * (kGated ? 2 : 1) * p.I;
        first_sum += bias[at];
        second_sum += bias[kGated ? p.I + at : at + 1];
      }
      CudaBf16* const to = p.hidden + (int64_t{t} * p.A + n / pairs) * p.I + at;
      to[0] = rounded<CudaBf16>(activated(first_sum, second_sum, p.activation));
      if constexpr (!kGated) {
        to[1] = rounded<CudaBf16>(activated(second_sum, first_sum, p.activation));
      }
    }
    n = next;
  }
}

inline constexpr int kDownLoads = 22;  // octets of weights that a lane loads together

// Adds the shared expert's part to a column's routed sum, rounded where the single ops round.
template <typename Weights>
__device__ inline float with_shared(const SharedPart<Weights>& shared, int t, float routed,
                                    float own) {
  own = as_float(rounded<CudaBf16>(own));
  if (shared.gate != nullptr) {
    const float gate = 1.0f / (1.0f + expf(-shared.gate[t * shared.gate_stride]));
    own = as_float(rounded<CudaBf16>(own * gate));
  }
  return as_float(rounded<CudaBf16>(routed)) + own;
}

// A row of blocks computes a token; a warp computes columns at fixed distances. Weight rows have up
// to kSteps * 256 numbers, of which the last step may lack some. Rows of several experts are loaded
// together and summed together; the shared expert is computed after the others. Reads 2 * A * I * H
// bytes a token.
template <typename Weights, int kSteps, bool kWhole>
__global__ void __launch_bounds__(kThreads, kBlocks)
    down_kernel(const __grid_constant__ Params<Weights> p) {
  // Experts whose rows are loaded at the same time.
  constexpr int kExperts = kSteps == 1 ? 16 : kDownLoads / kSteps;
  extern __shared__ uint4 shared[];  // A + 1 rows of I numbers
  const int t = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (is_padding(p, t)) {  // padding is known before the first product has ended, too
    wait_for_inputs();
    return;
  }
  const int num_experts = p.A + (p.shared.exists ? 1 : 0);
  // Whether the lane has no octet in the last step.
  const bool ends = !kWhole && (kSteps - 1) * kWarp + lane >= p.I / kOctet;
  __shared__ ChosenExperts chosen;
  read_experts(p, t, chosen);  // chosen by the first product before it let this kernel start
  __syncthreads();
  typename Weights::Octet w[kExperts][kSteps];
  const auto load = [&](int n, int first) {
#pragma unroll
    for (int e = 0; e < kExperts; ++e) {
      if (first + e >= num_experts) break;
      const typename Weights::Row row =
          first + e < p.A ? p.w2.row(chosen.ids[first + e], n) : p.shared.down.row(0, n);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (i == kSteps - 1 && ends) break;
        p.w2.load(row, i * kWarp + lane, w[e][i]);
      }
    }
  };
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  int n = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (n < p.H) load(n, 0);
  wait_for_inputs();
  const int octets = p.I / kOctet;
  const int routed = p.A * octets;
  const SharedRows hidden{shared, reinterpret_cast<float2*>(shared + routed + octets)};
  for (int i = static_cast<int>(threadIdx.x); i / kWarp * kWarp < routed; i += kThreads) {
    const auto* own = reinterpret_cast<const uint4*>(p.hidden + int64_t{t} * p.A * p.I);
    Weights::store(hidden, i, i < routed ? own[i] : uint4{}, i < routed);
  }
  for (int i = static_cast<int>(threadIdx.x); num_experts > p.A && i / kWarp * kWarp < octets;
       i += kThreads) {
    uint4 octet{};
    if (i < octets) {
      float gate[kOctet];
      float up[kOctet];
      p.shared.gate_up.load(t, i * kOctet, kOctet, gate);
      p.shared.gate_up.load(t, p.I + i * kOctet, kOctet, up);
#pragma unroll
      for (int j = 0; j < kOctet; ++j) gate[j] = activated(gate[j], up[j], {});
      store_octet(gate, reinterpret_cast<CudaBf16*>(&octet));
    }
    Weights::store(hidden, routed + i, octet, i < octets);
  }
  __syncthreads();
  // Lane l has the residual of the warp's column l.
  CudaBf16 befores{};
  if (const int column = n + lane * stride; p.residual != nullptr && column < p.H) {
    befores = p.residual[t * p.residual_stride + column];
  }
  for (int number = 0; n < p.H; n += stride, ++number) {
    float total = 0;
    float own = 0;  // result of the shared expert
    for (int first = 0; first < num_experts; first += kExperts) {
      if (first > 0) load(n, first);
      float sums[kExperts] = {};
#pragma unroll
      for (int e = 0; e < kExperts; ++e) {
        if (first + e >= num_experts) break;
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
          if (i == kSteps - 1 && ends) break;
          const int octet = i * kWarp + lane;
          const int row = (first + e) * (kWhole ? kSteps * kWarp : octets);
          Weights::add(p.w2, w[e][i], octet, hidden, row + octet, sums[e]);
        }
      }
#pragma unroll
      for (int e = 0; e < kExperts; ++e) sums[e] = warp_sum(sums[e]);
#pragma unroll
      for (int e = 0; e < kExperts; ++e) {
        if (first + e >= num_experts) break;
        if (first + e == p.A) {
          own = sums[e];
          continue;
        }
        const float bias =
            p.w2_bias != nullptr ? p.w2_bias[int64_t{chosen.ids[first + e]} * p.H + n] : 0.0f;
        total = fmaf(chosen.weights[first + e], sums[e] + bias, total);
      }
    }
    if (n + stride < p.H) load(n + stride, 0);
    const float before = __shfl_sync(0xffffffffu, as_float(befores), number % kWarp);
    if (lane == 0) {
      if (num_experts > p.A) total = with_shared(p.shared, t, total, own);
      if (p.residual != nullptr) {
        p.residual[t * p.residual_stride + n] =
            rounded<CudaBf16>(before + as_float(rounded<CudaBf16>(total)));
      } else {
        p.y.store_one(t, n, total);
      }
    }
  }
}

template <typename Weights>
using Kernel = void (*)(Params<Weights>);

template <typename Weights, int kSteps>
Kernel<Weights> down_kernel_of(bool whole) {
  if constexpr (!Weights::kPacked) {
    if (whole) return down_kernel<Weights, kSteps, true>;
  }
  return down_kernel<Weights, kSteps, false>;
}

// For a second product with rows of I numbers; null if no kernel was compiled for them.
template <typename Weights>
Kernel<Weights> down_kernel_of(int64_t I) {
  const bool whole = I % kStep == 0;
  switch (ceil_div(I, kStep)) {
    case 1:
      return down_kernel_of<Weights, 1>(whole);
    case 2:
      return down_kernel_of<Weights, 2>(whole);
    case 3:
      return down_kernel_of<Weights, 3>(whole);
    case 4:
      return down_kernel_of<Weights, 4>(whole);
    case 6:
      return down_kernel_of<Weights, 6>(whole);
    case 8:
      return down_kernel_of<Weights, 8>(whole);
    case 12:
      return down_kernel_of<Weights, 12>(whole);
    default:
      return nullptr;
  }
}

template <typename Weights, bool kGated>
Kernel<Weights> up_kernel_of(int64_t H) {
  if constexpr (!Weights::kPacked) {
    if (H % kStep == 0) return up_kernel<Weights, true, kGated>;
  }
  return up_kernel<Weights, false, kGated>;
}

// Blocks per token that run at once.
inline int64_t blocks_at_once(const CudaContext& context, int64_t T) {
  return std::max<int64_t>(1, kBlocks * context.gpu.properties().num_multiprocessors / T);
}

// Most bytes to prefetch: 4 MB a token, in view of the experts' weights that are being streamed,
// and at most 32 MB, so that the bytes stay in the cache.
inline int64_t fetch_bytes(const TensorView& weight, int64_t T) {
  if (weight.data == nullptr || !weight.dense() || !rows_are_aligned(weight)) return 0;
  const int64_t most = std::min<int64_t>(4 * T, 32) << 20;
  return std::min(most, weight.num_bytes()) / kFetchPiece * kFetchPiece;
}

template <typename Weights>
Status run(CudaContext& context, const FewExpertsArgs& args) {
  const RoutedMoeArgs& moe = *args.moe;
  const int64_t T = args.x.shape[0], H = args.x.shape[1], I = moe.w2.shape[2];
  const int64_t A = moe.experts_per_token;
  SharedPart<Weights> shared;
  if (args.shared) {
    shared = {.exists = true,
              .gate_up = SourceRows::of(args.shared->gate_up),
              .down = Weights::of(args.shared->down),
              .gate = args.shared->gate.as<float>(),
              .gate_stride = args.shared->gate.row_stride};
  }
  const bool routes = args.logits.data != nullptr;
  const Params<Weights> params{.scores = {.logits = args.logits.as<float>(),
                                          .stride = args.logits.row_stride,
                                          .E = routes ? static_cast<int>(args.logits.shape[1]) : 0,
                                          .renormalize = moe.renormalize},
                               .x = args.x.as<CudaBf16>(),
                               .w13 = Weights::of(moe.w13),
                               .w2 = Weights::of(moe.w2),
                               .w13_bias = moe.w13_bias.as<float>(),
                               .w2_bias = moe.w2_bias.as<float>(),
                               .experts = args.experts,
                               .weights = args.weights,
                               .row_sequences = args.row_sequences,
                               .hidden = reinterpret_cast<CudaBf16*>(args.hidden),
                               .y = TargetRows::of(args.y),
                               .residual = moe.residual.as<CudaBf16>(),
                               .x_stride = args.x.row_stride,
                               .residual_stride = moe.residual.row_stride,
                               .A = static_cast<int>(A),
                               .H = static_cast<int>(H),
                               .I = static_cast<int>(I),
                               .activation = moe.activation,
                               .shared = shared,
                               .read_next = moe.read_next.as<std::byte>(),
                               .fetch_bytes = fetch_bytes(moe.read_next, T)};
  // A multiprocessor runs two blocks at once; warps loop over the rows that are left.
  const int64_t at_once = blocks_at_once(context, T);
  const auto grid = [&](int64_t rounds) {
    return dim3(static_cast<unsigned>(std::min(at_once, rounds)), static_cast<unsigned>(T));
  };
  const bool gated = rows_per_hidden(moe.activation.form) == 2;
  const Kernel<Weights> up =
      gated ? up_kernel_of<Weights, true>(H) : up_kernel_of<Weights, false>(H);
  const Kernel<Weights> down = down_kernel_of<Weights>(I);
  const int64_t x_bytes = H / kOctet * Weights::kOctetBytes;
  const int64_t hidden_bytes = (A + 1) * (I / kOctet) * Weights::kOctetBytes;
  HEDDLE_RETURN_IF_ERROR(prefer_cache(context, up, kBlocks, x_bytes));
  HEDDLE_RETURN_IF_ERROR(prefer_cache(context, down, kBlocks, hidden_bytes));
  HEDDLE_RETURN_IF_ERROR(launch(context, "moe_up few", up,
                                grid(ceil_div(A * I / (gated ? 1 : 2), kWarps)), kThreads, params,
                                static_cast<size_t>(x_bytes)));
  return launch(context, "moe_down few", down, grid(ceil_div(H, kWarps)), kThreads, params,
                static_cast<size_t>(hidden_bytes));
}

// Launches for quantised weights; each is compiled in a separate file.
Status run_e4m3(CudaContext& context, const FewExpertsArgs& args);
Status run_e2m1(CudaContext& context, const FewExpertsArgs& args);
Status run_u8(CudaContext& context, const FewExpertsArgs& args);
Status run_u4(CudaContext& context, const FewExpertsArgs& args);

}  // namespace heddle::ops::few_experts
