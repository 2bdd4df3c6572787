// SPDX-License-Identifier: Apache-2.0
// y = f(x) weight' [+ bias | + residual] for 1 to 16 rows: f is nothing, an RMS norm, or a gate of
// one row.
// A group of 8 warps owns tiles of 8 columns of y; a warp owns an eighth of K, a lane octets of one
// of the 8 weight rows, as operands of mma.sync. The warps' sums are added in their order. A block
// is one group (one row) or two, which share x in shared memory.
// Bytes: the weights once, at the speed of memory. Flops: 2 * T * N * K, never the limit.
// Taken in fast mode: bf16 weights on 16 bytes, K a multiple of 32, x fits shared memory.
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/cuda/warp_matrix.cuh"
#include "ops/elementwise/element.cuh"
#include "ops/gemm/skinny_product.h"
#include "ops/norm/norm_row.cuh"

namespace heddle::ops {

namespace {

constexpr int kWarps = 8;  // of a group
constexpr int kGroupThreads = kWarps * kWarp;
constexpr int kTile = 8;                    // columns of y that a group computes together
constexpr int kStep = kWarps * 4 * kOctet;  // columns of K: four lanes of each warp have an octet
constexpr int kPadding = 4;                 // octets behind a row of x: other banks for the next
constexpr int64_t kOwnShared = 17 << 10;    // bytes that a block has beside x, at most

struct Part {
  const CudaBf16* weight;
  const float* bias;  // null: none
  TargetRows y;
  int64_t weight_stride;
  int N;
};

struct Norm {
  const float* weight;
  CudaBf16* y;
  int64_t y_stride;
  float epsilon;
};

// x * sigmoid(b), or silu(x) * b.
struct Gate {
  const CudaBf16* b;
  ElementwiseKind kind;
};

enum class Prologue { kNone, kNorm, kGate };

struct Params {
  const CudaBf16* x;
  Part parts[kSkinnyProducts];
  Norm norm;
  Gate gate;
  CudaBf16* residual;  // null: none
  int64_t residual_stride, x_stride;
  int T, K, N;  // N: of all parts
};

// The form for at most kRows rows of x. For one row a block is one group of warps and two blocks
// share a processor, so that the next kernel can begin where the first of them has ended. For more
// rows a block is two groups, which share x: it comes to a processor once.
template <int kRows>
struct Form {
  static constexpr int kGroups = kRows == 1 ? 1 : 2;
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kBlocks = 2 / kGroups;                       // of a processor
  static constexpr int kHalves = kRows <= 8 ? 1 : 2;                // eight rows of x each
  static constexpr int kAtOnce = kRows <= 8 ? kRows / kGroups : 4;  // rows that a group normalises

  int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  int thread = static_cast<int>(threadIdx.x) % kGroupThreads;

  // The first of the group's tiles, and how far on the next one is.
  [[nodiscard]] __device__ int first_tile() const {
    return static_cast<int>(blockIdx.x + group * gridDim.x);
  }

  [[nodiscard]] static __device__ int tile_stride() {
    return kGroups * static_cast<int>(gridDim.x);
  }

  // As __syncthreads(), for the threads of a group.
  __device__ void synchronize() const {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroupThreads) : "memory");
  }
};

// Of T rows of x in shared memory.
constexpr int64_t bytes_of_x(int64_t T, int64_t K) {
  return T * (K / kOctet + kPadding) * static_cast<int64_t>(sizeof(uint4));
}

int64_t most_bytes_of_x(const CudaContext& context) {
  return context.gpu.properties().shared_bytes - kOwnShared;
}

// Octets from a row of x in shared memory to the next.
__device__ inline int row_octets(const Params& p) { return p.K / kOctet + kPadding; }

// The part of a warp, the last of which may have less, in steps of four octets.
__device__ inline int steps_of(const Params& p) { return (p.K + kStep - 1) / kStep; }

template <bool kWhole>
__device__ inline int own_steps_of(const Params& p, int warp) {
  if (kWhole) return steps_of(p);
  return min(steps_of(p), max(0, p.K / (4 * kOctet) - warp * steps_of(p)));
}

// The rows of x in shared memory: the groups take them in turn, a group's threads the octets of
// each. The constructor does the part that reads no output of an earlier kernel.
template <int kRows, Prologue kPrologue>
struct RowsOfX : Form<kRows> {
  __device__ explicit RowsOfX(const Params& /*p*/) {}

  __device__ void fill(const Params& p, uint4* x) const {
    for (int r = this->group; r < p.T; r += this->kGroups) {
      for (int i = this->thread; i < p.K / kOctet; i += kGroupThreads) {
        copy_async(x + r * row_octets(p) + i, p.x + r * p.x_stride + i * kOctet, true);
      }
    }
    commit_copies();
    wait_copies<0>();
  }
};

// One row, gated. A thread's loads go out together.
template <>
struct RowsOfX<1, Prologue::kGate> : Form<1> {
  __device__ explicit RowsOfX(const Params& /*p*/) {}

  __device__ void fill(const Params& p, uint4* x) const {
#pragma unroll 2
    for (int i = thread; i < p.K / kOctet; i += kGroupThreads) {
      float a[kOctet];
      float b[kOctet];
      load_octet(p.x + i * kOctet, a);
      load_octet(p.gate.b + i * kOctet, b);
#pragma unroll
      for (int j = 0; j < kOctet; ++j) a[j] = element_of(p.gate.kind, a[j], b[j]);
      store_octet(a, reinterpret_cast<CudaBf16*>(x + i));
    }
  }
};

// Normalised in the steps of rms_norm(), some of a group's rows side by side. Block r % gridDim.x
// also writes row r.
template <int kRows>
struct RowsOfX<kRows, Prologue::kNorm> : Form<kRows> {
  using Form<kRows>::group, Form<kRows>::thread, Form<kRows>::kGroups, Form<kRows>::kAtOnce;

  float weights[kOctet];  // of the thread's first octet

  __device__ explicit RowsOfX(const Params& p) {
    if (thread < p.K / kOctet) load_octet(p.norm.weight + thread * kOctet, weights);
  }

  __device__ void fill(const Params& p, uint4* x) const {
    for (int first = group; first < p.T; first += kAtOnce * kGroups) fill_from(p, first, x);
  }

 private:
  __device__ void fill_from(const Params& p, int first, uint4* x) const {
    __shared__ float square_sums[kGroups][kAtOnce][kWarps];
    const auto row_of = [&](int k) { return first + k * kGroups; };
    float sums[kAtOnce] = {};
    for (int i = thread; i < p.K / kOctet; i += kGroupThreads) {
      uint4 words[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (row_of(k) >= p.T) break;
        words[k] = *reinterpret_cast<const uint4*>(p.x + row_of(k) * p.x_stride + i * kOctet);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (row_of(k) >= p.T) break;
        x[row_of(k) * row_octets(p) + i] = words[k];
        float values[kOctet];
        load_octet(reinterpret_cast<const CudaBf16*>(&words[k]), values);
        add_squares(values, sums[k]);
      }
    }
    this->synchronize();  // behind the sums of the rows before
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      sums[k] = warp_sum(sums[k]);
      if (thread % kWarp == 0) square_sums[group][k][thread / kWarp] = sums[k];
    }
    this->synchronize();
    float scales[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      scales[k] = norm_scale(sum_of_warps(square_sums[group][k]), p.K, p.norm.epsilon);
    }
    for (int i = thread; i < p.K / kOctet; i += kGroupThreads) {
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
        auto* const octet = reinterpret_cast<CudaBf16*>(x + r * row_octets(p) + i);
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

  // In the order of block_sum().
  static __device__ float sum_of_warps(const float (&v)[kWarps]) {
    static_assert(kWarps == 8);
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
  }
};

// The weights of a group's tiles as they come from memory: a lane has octets of one row of a tile,
// every fourth of its warp's part of K. Two batches are on their way at any time.
template <int kRows, bool kWhole>
class WeightStream {
 public:
  static constexpr int kBatch = 8;

  __device__ WeightStream(const Params& p, int num_tiles)
      : p_(p),
        num_tiles_(num_tiles),
        steps_(steps_of(p)),
        own_steps_(own_steps_of<kWhole>(p, warp())),
        tile_(Form<kRows>().first_tile()) {
    seek();
  }

  __device__ void load(uint4 (&batch)[kBatch]) {
    if (tile_ >= num_tiles_) return;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first_ + i < own_steps_) batch[i] = __ldcs(from_ + (first_ + i) * 4);
    }
    first_ += kBatch;
    if (first_ < steps_) return;
    first_ = 0;
    tile_ += Form<kRows>::tile_stride();
    seek();
  }

 private:
  static __device__ int warp() { return Form<kRows>().thread / kWarp; }

  __device__ void seek() {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int n = min(tile_ * kTile + lane / 4, p_.N - 1);
    const bool second = n >= p_.parts[0].N;
    const Part& part = p_.parts[second ? 1 : 0];
    const CudaBf16* row = part.weight + (second ? n - p_.parts[0].N : n) * part.weight_stride;
    from_ = reinterpret_cast<const uint4*>(row) + warp() * steps_ * 4 + lane % 4;
  }

  const Params& p_;
  const int num_tiles_, steps_, own_steps_;
  int tile_, first_ = 0;
  const uint4* from_;
};

// An element of y that a thread stores. Its addend is loaded when the tile begins, ahead of the
// loads of weights for the next tile.
class Element {
 public:
  __device__ Element(const Params& p, int t, int n) : t_(t), n_(n), real_(t < p.T && n < p.N) {
    if (!real_) return;
    const bool second = n >= p.parts[0].N;
    if (second) n_ -= p.parts[0].N;
    part_ = &p.parts[second ? 1 : 0];
    if (part_->bias != nullptr) bias_ = part_->bias[n_];
    if (!second && p.residual != nullptr) residual_ = p.residual + t * p.residual_stride + n;
    if (residual_ != nullptr) before_ = *residual_;
  }

  [[nodiscard]] __device__ bool real() const { return real_; }

  // `sum`: over K.
  __device__ void store(float sum) const {
    sum += bias_;
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

// Groups of warps compute tiles of eight columns of y with the rows of x that lie in their block's
// shared memory. The warps of a group share K: a warp takes its part of each of the tile's eight
// rows of the weight, whose octets are operands of a tensor core as they come, if those of x are
// read in the same order. The warps' sums are added in their order.
template <int kRows, Prologue kPrologue, bool kWhole>
__global__ void __launch_bounds__(Form<kRows>::kThreads, Form<kRows>::kBlocks)
    skinny_kernel(const __grid_constant__ Params p) {
  using Stream = WeightStream<kRows, kWhole>;
  constexpr int kHalves = Form<kRows>::kHalves;
  extern __shared__ uint4 x[];  // [T, K / 8 + kPadding]
  __shared__ float partial_sums[Form<kRows>::kGroups][2][kWarps][kHalves * 8][kTile];
  static_assert(sizeof(partial_sums) + (1 << 10) <= kOwnShared, "and what a prologue has");
  const RowsOfX<kRows, kPrologue> rows(p);
  const int warp = rows.thread / kWarp;
  const int lane = rows.thread % kWarp;
  const int num_tiles = (p.N + kTile - 1) / kTile;
  const int steps = steps_of(p);
  const int own_steps = own_steps_of<kWhole>(p, warp);
  int tile = rows.first_tile();

  Stream weights(p, num_tiles);
  uint4 even[Stream::kBatch];
  uint4 odd[Stream::kBatch];
  weights.load(even);  // weights do not wait for x
  weights.load(odd);
  wait_for_inputs();
  const int t = rows.thread / kTile;
  const int column = rows.thread % kTile;
  Element element(p, t, tile * kTile + column);
  rows.fill(p, x);
  __syncthreads();
  if (tile >= num_tiles) return;

  const auto operands = [&](int r) {
    return x + min(r, p.T - 1) * row_octets(p) + warp * steps * 4 + lane % 4;
  };
  const uint4* low = operands(lane / 4);
  const uint4* high = operands(lane / 4 + 8);
  float sums[2][4] = {};
  int first = 0;
  int buffer = 0;
  // Multiplies a batch and loads the one after the next in its place; false after the last tile.
  const auto take = [&](uint4(&batch)[Stream::kBatch]) {
#pragma unroll
    for (int i = 0; i < Stream::kBatch; ++i) {
      if (first + i >= own_steps) break;
      const uint4 a = low[(first + i) * 4];
      const uint4 b = kHalves == 2 ? high[(first + i) * 4] : uint4{};
      multiply_bf16(sums[0], {a.x, b.x, a.y, b.y}, {batch[i].x, batch[i].y});
      multiply_bf16(sums[1], {a.z, b.z, a.w, b.w}, {batch[i].z, batch[i].w});
    }
    weights.load(batch);
    first += Stream::kBatch;
    if (first < steps) return true;
    auto& shared = partial_sums[rows.group][buffer];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      float* to = &shared[warp][half * 8 + lane / 4][lane % 4 * 2];
      to[0] = sums[0][half * 2] + sums[1][half * 2];
      to[1] = sums[0][half * 2 + 1] + sums[1][half * 2 + 1];
    }
    rows.synchronize();
    if (element.real()) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += shared[w][t][column];
      element.store(sum);
    }
    tile += rows.tile_stride();
    if (tile >= num_tiles) return false;
    element = Element(p, t, tile * kTile + column);
    buffer = 1 - buffer;  // others may still add those of this tile
    first = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[0][i] = sums[1][i] = 0;
    return true;
  };
  while (take(even) && take(odd)) {
  }
}

template <int kRows, Prologue kPrologue>
Status launch_form(CudaContext& context, const Params& params) {
  const auto kernel = params.K % kStep == 0 ? skinny_kernel<kRows, kPrologue, true>
                                            : skinny_kernel<kRows, kPrologue, false>;
  HEDDLE_RETURN_IF_ERROR(allow_shared(kernel, static_cast<size_t>(most_bytes_of_x(context))));
  const int64_t most = int64_t{Form<kRows>::kBlocks} * context.gpu.properties().num_multiprocessors;
  return launch(context, "linear", kernel, grid_of(std::min(most, ceil_div(params.N, kTile))),
                Form<kRows>::kThreads, params, static_cast<size_t>(bytes_of_x(params.T, params.K)));
}

template <Prologue kPrologue>
Status launch_rows(CudaContext& context, const Params& params) {
  if (params.T == 1) return launch_form<1, kPrologue>(context, params);
  if (params.T == 2) return launch_form<2, kPrologue>(context, params);
  if (params.T <= 8) return launch_form<8, kPrologue>(context, params);
  return launch_form<16, kPrologue>(context, params);
}

bool is_bf16(const TensorView& x) { return x.dtype == DType::kBf16 && rows_are_aligned(x); }

}  // namespace

bool skinny_products_fit(const CudaContext& context, const SkinnyProducts& args) {
  if (context.exact || args.products.empty() || args.products.size() > kSkinnyProducts) {
    return false;
  }
  const TensorView& x = args.products[0].x;
  const int64_t T = x.shape[0], K = x.shape[1];
  if (T < 1 || T > (args.gate ? 1 : kSkinnyRows) || K == 0 || K % (4 * kOctet) != 0 ||
      bytes_of_x(T, K) > most_bytes_of_x(context)) {
    return false;
  }
  bool has_bias = false;
  for (const LinearArgs& product : args.products) {
    if (product.x.data != x.data || !is_bf16(product.weight)) return false;
    has_bias |= product.bias.data != nullptr;
  }
  if (args.residual.data != nullptr) {
    // Blocks write the residual while others still read x.
    const auto is_residual = [&](const TensorView& read) {
      return read.data == args.residual.data;
    };
    if (args.residual.dtype != DType::kBf16 || is_residual(x)) return false;
    if (args.gate && (is_residual(args.gate->a) || is_residual(args.gate->b))) return false;
  }
  if (args.norm) {
    return !has_bias && args.residual.data == nullptr && args.norm->weight.shape[0] == K &&
           is_bf16(args.norm->x) && is_bf16(args.norm->y) &&
           reinterpret_cast<uintptr_t>(args.norm->weight.data) % 16 == 0;
  }
  if (args.gate) {
    return is_bf16(args.gate->a) && is_bf16(args.gate->b) && args.gate->b.shape[1] == K;
  }
  return is_bf16(x);
}

Status skinny_products(CudaContext& context, const SkinnyProducts& args) {
  TensorView x = args.products[0].x;
  if (args.norm) x = args.norm->x;
  if (args.gate) x = args.gate->a;
  Params params{.x = x.as<CudaBf16>(),
                .residual = args.residual.as<CudaBf16>(),
                .residual_stride = args.residual.row_stride,
                .x_stride = x.row_stride,
                .T = static_cast<int>(x.shape[0]),
                .K = static_cast<int>(x.shape[1])};
  for (size_t i = 0; i < args.products.size(); ++i) {
    const LinearArgs& product = args.products[i];
    params.parts[i] = {.weight = product.weight.as<CudaBf16>(),
                       .bias = product.bias.as<float>(),
                       .y = TargetRows::of(product.y),
                       .weight_stride = product.weight.row_stride,
                       .N = static_cast<int>(product.weight.shape[0])};
    params.N += params.parts[i].N;
  }
  if (args.norm) {
    params.norm = {.weight = args.norm->weight.as<float>(),
                   .y = args.norm->y.as<CudaBf16>(),
                   .y_stride = args.norm->y.row_stride,
                   .epsilon = args.norm->epsilon};
    return launch_rows<Prologue::kNorm>(context, params);
  }
  if (args.gate) {
    params.gate = {.b = args.gate->b.as<CudaBf16>(), .kind = args.gate->kind};
    return launch_form<1, Prologue::kGate>(context, params);
  }
  return launch_rows<Prologue::kNone>(context, params);
}

}  // namespace heddle::ops
