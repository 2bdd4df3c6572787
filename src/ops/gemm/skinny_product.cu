// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/elementwise/element.cuh"
#include "ops/gemm/skinny_product.h"
#include "ops/norm/norm_row.cuh"

namespace heddle::ops {

namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStep = kWarp * kOctet;  // columns of K that a warp loads at once
constexpr int64_t kMostColumns = 8192;

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
  CudaBf16* residual;  // of one row; null: none
  int64_t x_stride;
  int T, K, N;  // N: of all parts
};

__device__ inline uint4 load_words(const CudaBf16* from) {
  return *reinterpret_cast<const uint4*>(from);
}

// The rows of x in shared memory. What reads nothing that a kernel before may have written is done
// when it is made.
template <Prologue kPrologue>
struct RowsOfX {
  __device__ explicit RowsOfX(const Params& /*p*/) {}

  __device__ void fill(const Params& p, uint4* x) const {
    const int octets = p.K / kOctet;
    for (int r = 0; r < p.T; ++r) {
      for (int i = static_cast<int>(threadIdx.x); i < octets; i += kThreads) {
        x[r * octets + i] = load_words(p.x + r * p.x_stride + i * kOctet);
      }
    }
  }
};

// One row, gated. A thread's loads go out together.
template <>
struct RowsOfX<Prologue::kGate> {
  __device__ explicit RowsOfX(const Params& /*p*/) {}

  __device__ void fill(const Params& p, uint4* x) const {
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < p.K / kOctet; i += kThreads) {
      const uint4 x_words = load_words(p.x + i * kOctet);
      const uint4 b_words = load_words(p.gate.b + i * kOctet);
      float a[kOctet];
      float b[kOctet];
      load_octet(reinterpret_cast<const CudaBf16*>(&x_words), a);
      load_octet(reinterpret_cast<const CudaBf16*>(&b_words), b);
#pragma unroll
      for (int j = 0; j < kOctet; ++j) a[j] = element_of(p.gate.kind, a[j], b[j]);
      store_octet(a, reinterpret_cast<CudaBf16*>(x + i));
    }
  }
};

// One row, normalised in the steps of rms_norm(). The first block also writes it.
template <>
struct RowsOfX<Prologue::kNorm> {
  float weights[kOctet];  // of the thread's first octet

  __device__ explicit RowsOfX(const Params& p) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < p.K / kOctet) load_octet(p.norm.weight + i * kOctet, weights);
  }

  __device__ void fill(const Params& p, uint4* x) const {
    __shared__ float scratch[kWarp];
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < p.K / kOctet; i += kThreads) {
      x[i] = load_words(p.x + i * kOctet);
      float values[kOctet];
      load_octet(reinterpret_cast<const CudaBf16*>(x + i), values);
      add_squares(values, sum);
    }
    const float scale = norm_scale(block_sum(sum, scratch), p.K, p.norm.epsilon);
    for (int i = static_cast<int>(threadIdx.x); i < p.K / kOctet; i += kThreads) {
      float values[kOctet];
      float normed[kOctet];
      load_octet(reinterpret_cast<const CudaBf16*>(x + i), values);
      if (i < kThreads) {
        normalise(values, scale, weights, normed);
      } else {
        float others[kOctet];
        load_octet(p.norm.weight + i * kOctet, others);
        normalise(values, scale, others, normed);
      }
      store_octet(normed, reinterpret_cast<CudaBf16*>(x + i));
      if (blockIdx.x == 0) store_octet(normed, p.norm.y + i * kOctet);
    }
  }
};

const __device__ inline uint4* weight_row(const Params& p, int n) {
  const CudaBf16* row = n < p.parts[0].N
                            ? p.parts[0].weight + n * p.parts[0].weight_stride
                            : p.parts[1].weight + (n - p.parts[0].N) * p.parts[1].weight_stride;
  return reinterpret_cast<const uint4*>(row);
}

// Stores elements of all products' columns; with kEdits also those with a bias and those that are
// added to the residual, which is read early for the first column that a warp has. Without, the
// loop over weights has no other loads: one that is used behind the next row's would wait for them.
template <bool kEdits>
class ElementStore {
 public:
  __device__ ElementStore(const Params& p, int n) : p_(p), first_(n) {
    if (kEdits && adds(n)) before_ = p.residual[n];
  }

  // `sum`: over K.
  __device__ void store(int t, int n, float sum) const {
    const bool second = n >= p_.parts[0].N;
    const Part& part = p_.parts[second ? 1 : 0];
    const int column = second ? n - p_.parts[0].N : n;
    if (kEdits && part.bias != nullptr) sum += part.bias[column];
    if (kEdits && adds(n)) {
      const float before = as_float(n == first_ ? before_ : p_.residual[n]);
      p_.residual[n] = rounded<CudaBf16>(before + as_float(rounded<CudaBf16>(sum)));
    } else {
      part.y.store_one(t, column, sum);
    }
  }

 private:
  __device__ bool adds(int n) const { return p_.residual != nullptr && n < p_.parts[0].N; }

  const Params& p_;
  const int first_;
  CudaBf16 before_{};
};

// A warp takes whole weight rows, every kWarps * gridDim-th, so that all warps have the same number
// but for one; x lies in shared memory. Loads of a row go out together before the first is used,
// and those of the next row before the sums of this one are joined: 4 KB of a warp, or 8 where
// there is a row for each warp at most, and nothing else to wait for.
template <int kRows, Prologue kPrologue, bool kEdits>
__global__ void __launch_bounds__(kThreads, 2) skinny_kernel(const __grid_constant__ Params p) {
  constexpr int kInFlight = kEdits ? 16 : 8;  // octets of weights that a lane loads together
  extern __shared__ uint4 x[];                // [kRows, K / 8]
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int octets = p.K / kOctet;
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  const int steps = p.K / kStep;
  int n = static_cast<int>(blockIdx.x) * kWarps + warp;

  uint4 w[kInFlight];
  const auto load = [&](int row, int first_step) {
    const uint4* from = weight_row(p, row) + lane;
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (first_step + i < steps) w[i] = __ldcs(from + (first_step + i) * kWarp);
    }
  };
  if (n < p.N) load(n, 0);  // weights do not wait for x
  const RowsOfX<kPrologue> rows(p);
  wait_for_inputs();
  const ElementStore<kEdits> elements(p, n);
  rows.fill(p, x);
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
          const int row = min(r, p.T - 1);
          float values[kOctet];
          load_octet(
              reinterpret_cast<const CudaBf16*>(&x[row * octets + (first + i) * kWarp + lane]),
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
    for (int r = 0; r < kRows; ++r) {
      const float sum = warp_sum(sums[r]);
      if (lane == r && r < p.T) elements.store(r, n, sum);
    }
    n = next;
  }
}

template <int kRows, Prologue kPrologue, bool kEdits>
Status launch_form(CudaContext& context, const Params& params) {
  const auto kernel = skinny_kernel<kRows, kPrologue, kEdits>;
  HEDDLE_RETURN_IF_ERROR(allow_shared(kernel, kRows * kMostColumns * 2));
  const int64_t most = int64_t{2} * context.gpu.properties().num_multiprocessors;
  return launch(context, "linear", kernel, grid_of(std::min(most, ceil_div(params.N, kWarps))),
                kThreads, params, static_cast<size_t>(params.T) * params.K * 2);
}

template <bool kEdits>
Status launch_rows(CudaContext& context, const Params& params) {
  if (params.T == 1) return launch_form<1, Prologue::kNone, kEdits>(context, params);
  if (params.T == 2) return launch_form<2, Prologue::kNone, kEdits>(context, params);
  return launch_form<4, Prologue::kNone, kEdits>(context, params);
}

bool is_bf16(const TensorView& x) { return x.dtype == DType::kBf16 && rows_are_aligned(x); }

}  // namespace

bool skinny_products_fit(const CudaContext& context, const SkinnyProducts& args) {
  if (context.exact || args.products.empty() || args.products.size() > kSkinnyProducts) {
    return false;
  }
  const TensorView& x = args.products[0].x;
  const int64_t T = x.shape[0], K = x.shape[1];
  const bool goes_on = args.norm || args.gate || args.residual.data != nullptr;
  if (T < 1 || T > (goes_on ? 1 : kSkinnyRows) || K == 0 || K % kStep != 0 || K > kMostColumns) {
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
                .x_stride = x.row_stride,
                .T = static_cast<int>(x.shape[0]),
                .K = static_cast<int>(x.shape[1])};
  bool edits = args.residual.data != nullptr;
  for (size_t i = 0; i < args.products.size(); ++i) {
    const LinearArgs& product = args.products[i];
    params.parts[i] = {.weight = product.weight.as<CudaBf16>(),
                       .bias = product.bias.as<float>(),
                       .y = TargetRows::of(product.y),
                       .weight_stride = product.weight.row_stride,
                       .N = static_cast<int>(product.weight.shape[0])};
    params.N += params.parts[i].N;
    edits |= product.bias.data != nullptr;
  }
  if (args.norm) {
    params.norm = {.weight = args.norm->weight.as<float>(),
                   .y = args.norm->y.as<CudaBf16>(),
                   .epsilon = args.norm->epsilon};
    return launch_form<1, Prologue::kNorm, false>(context, params);
  }
  if (args.gate) {
    params.gate = {.b = args.gate->b.as<CudaBf16>(), .kind = args.gate->kind};
    return launch_form<1, Prologue::kGate, true>(context, params);
  }
  return edits ? launch_rows<true>(context, params) : launch_rows<false>(context, params);
}

}  // namespace heddle::ops
