// SPDX-License-Identifier: Apache-2.0
// Convolution, gated delta rule and gated norm of few tokens in one launch, with the same results
// as the three ops (causal_conv1d.h, gated_delta_rule.h, gated_rms_norm.h). A block computes a
// value head of a sequence, or a half or quarter of its rows, through all its tokens; the blocks of
// a key head are a cluster. A warp has rows of the state (state_rows.cuh), a thread one column of q
// and k, or of v and z; a warp normalises a token. Bytes: 8 * 128 * 128 a head and sequence, 24 a
// channel of windows: bound by latency, with more sequences by memory. Used on Hopper in fast mode
// if all sequences have the same 1 to 8 rows and there are few heads in all: bf16, D = 128.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/cuda/sm90/mbarrier.cuh"
#include "ops/linear_attention/delta_step_sm90.h"
#include "ops/linear_attention/snapshot_rows.cuh"
#include "ops/linear_attention/state_rows.cuh"

namespace heddle::ops {

namespace {

constexpr int kDim = 128;  // width of keys and values
constexpr int kOctets = kDim / kOctet;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kWindow = 3;  // inputs of a channel that the convolution stores
constexpr int kMostTokens = kFewRows;
constexpr int kMostBlocks = 8;  // most blocks of a cluster

static_assert(kWarps >= kMostTokens, "a warp normalises a token");

struct Params {
  const CudaBf16* x;
  const float* conv_weight;  // weights of the convolution [C, 4]
  float* windows;            // windows of the state slots [slots, 3, C]
  float* snapshot_windows;   // windows of snapshots, laid out like `windows`
  const float* a;
  const float* b;
  const float* neg_exp_a_log;
  const float* dt_bias;
  float* state;
  SnapshotMatrices snapshots;
  const CudaBf16* z;
  const float* norm_weight;
  CudaBf16* y;
  int64_t x_stride, windows_stride, snapshot_windows_stride, a_stride, b_stride, state_stride;
  int64_t z_stride, y_stride;
  int64_t C;
  int Nk, Nv;
  float epsilon;
  NormGate gate;
  DeviceBatch batch;
};

__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address in another block's shared memory that corresponds to `own` in this block's.
__device__ inline uint32_t address_in_block(const void* own, int block) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"(sm90::shared_address(own)), "r"(block));
  return there;
}

// Writes a number to the address that corresponds to `to` in another block of the cluster. That
// block's `arrived` barrier counts the four bytes. Arriving at the cluster's barrier instead would
// also wait for all earlier stores.
__device__ inline void send_to_block(float* to, sm90::Barrier& arrived, int block, float value) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
          address_in_block(to, block)),
      "r"(__float_as_uint(value)), "r"(address_in_block(&arrived, block))
      : "memory");
}

// Convolves one channel; holds its window and weights and the step's inputs.
template <int kTokens>
struct Channel {
  float window[kWindow];
  float4 weight;
  CudaBf16 x[kTokens];

  __device__ void load_window(const Params& p, int64_t slot, int64_t channel, bool fresh) {
    const float* from = p.windows + slot * p.windows_stride + channel;
#pragma unroll
    for (int m = 0; m < kWindow; ++m) window[m] = fresh ? 0.0f : from[m * p.C];
    weight = reinterpret_cast<const float4*>(p.conv_weight)[channel];
  }

  // Input number i, counted from the beginning of the window.
  [[nodiscard]] __device__ float input(int i) const {
    return i < kWindow ? window[i] : as_float(x[i - kWindow]);
  }

  // The convolved input of token t, rounded as the separate op stores it.
  [[nodiscard]] __device__ float convolve(int t) const {
    float sum = __fmul_rn(weight.x, input(t));
    sum = fmaf(weight.y, input(t + 1), sum);
    sum = fmaf(weight.z, input(t + 2), sum);
    sum = fmaf(weight.w, input(t + 3), sum);
    return as_float(rounded<CudaBf16>(quick_silu(sum)));
  }

  // Stores the window after token t.
  __device__ void keep(int t, float* to, int64_t C, int64_t channel) const {
#pragma unroll
    for (int m = 0; m < kWindow; ++m) to[m * C + channel] = input(t + 1 + m);
  }
};

template <int kTokens>
__device__ inline void load_rows(const CudaBf16* from, int64_t stride, int num_tokens,
                                 CudaBf16 (&to)[kTokens]) {
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (t < num_tokens) to[t] = from[t * stride];
  }
}

struct alignas(16) SharedToken {
  float k[kDim];  // normalised key
  float q[kDim];
  float v[kDim];
  float y[kDim];
  float opening[kDim];          // the gate's factor on each number of y
  float sums[3][kDim / kWarp];  // the warps' parts of k.k, q.q and k.q
  float squares[kOctets];       // sums of squares of the output from all blocks of the head
  float alpha, beta, kq;

  [[nodiscard]] __device__ float total(int i) const {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kDim / kWarp; ++w) sum += sums[i][w];
    return sum;
  }

  [[nodiscard]] __device__ float k_factor() const { return 1.0f / sqrtf(total(0) + 1e-6f); }

  [[nodiscard]] __device__ float q_factor() const {
    return 1.0f / sqrtf(static_cast<float>(kDim)) / sqrtf(total(1) + 1e-6f);
  }
};

// kSplit blocks share a value head, each with some of its rows. The first half of a block's threads
// have a column of q and of k each. In the second half, as many threads as the block has rows have
// one column of v and of z.
template <int kTokens, int kSplit>
__global__ void __launch_bounds__(kThreads, 2) delta_step_kernel(const __grid_constant__ Params p) {
  __shared__ SharedToken tokens[kTokens];
  __shared__ float norm_weights[kDim];
  __shared__ sm90::Barrier squares_arrived;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  using Rows = StateRows<4 / kSplit>;
  constexpr int kRows = kWarps * Rows::kWarpRows;  // rows of the head that a block has
  static_assert(kRows * kSplit == kDim);
  const int64_t b = blockIdx.x / (p.Nv * kSplit);
  const int part = static_cast<int>(blockIdx.x) % kSplit;
  const int h = static_cast<int>(blockIdx.x) / kSplit % p.Nv;
  const int key_head = h * p.Nk / p.Nv;
  // Rank in the cluster of the first block with this head.
  const int first_in_cluster = h % (p.Nv / p.Nk) * kSplit;
  const bool keeps_keys = first_in_cluster + part == 0;
  const int64_t slot = p.batch.state_slots[b];
  if (slot < 0) {  // padding: the whole cluster returns
    wait_for_inputs();
    return;
  }
  const int64_t row = p.batch.query_start[b];
  const int num_tokens = kTokens == 1 ? 1 : static_cast<int>(p.batch.query_start[b + 1] - row);
  const bool fresh = p.batch.context_lens[b] == 0;
  if (kSplit > 1 && thread == 0) {
    sm90::init(squares_arrived, 1);
    sm90::publish_barriers();
    // Bytes of the sums of squares of one token.
    constexpr auto kBytes = static_cast<uint32_t>(kOctets * sizeof(float));
    sm90::arrive_expecting(squares_arrived, static_cast<uint32_t>(num_tokens) * kBytes);
  }

  const bool has_keys = thread < kDim;
  const int column = thread % kDim;  // column of the key head, or of the block's values
  const bool has_values = !has_keys && column < kRows;
  // First value row, counted over all value heads.
  const int64_t first_row = int64_t{h} * kDim + part * kRows;
  const int64_t q_channel = key_head * kDim + column;
  const int64_t k_channel = p.Nk * kDim + q_channel;
  const int64_t v_channel = 2 * p.Nk * kDim + first_row + column;
  Channel<kTokens> first, second;  // the thread's columns of q and k, or its column of v
  if (has_keys || has_values) {
    first.load_window(p, slot, has_keys ? q_channel : v_channel, fresh);
  }
  if (has_keys) second.load_window(p, slot, k_channel, fresh);
  const Rows rows(lane, warp);
  float* state = p.state + slot * p.state_stride + (first_row + rows.first) * kDim;
  typename Rows::Numbers s;
  rows.load(state, fresh, s);
  if (has_values) norm_weights[column] = p.norm_weight[part * kRows + column];
  const float dt_bias = p.dt_bias[h];
  const float neg_exp_a_log = p.neg_exp_a_log[h];
  wait_for_inputs();

  const CudaBf16* x = p.x + row * p.x_stride;
  const int own_token = thread - kDim;  // the token whose decay and beta this thread computes
  const bool has_token = own_token >= 0 && own_token < num_tokens;
  const float a_in = has_token ? p.a[(row + own_token) * p.a_stride + h] : 0.0f;
  const float b_in = has_token ? p.b[(row + own_token) * p.b_stride + h] : 0.0f;
  CudaBf16 z[kTokens];
  if (has_keys) {
    load_rows(x + q_channel, p.x_stride, num_tokens, first.x);
    load_rows(x + k_channel, p.x_stride, num_tokens, second.x);
  } else if (has_values) {
    load_rows(x + v_channel, p.x_stride, num_tokens, first.x);
    load_rows(p.z + row * p.z_stride + first_row + column, p.z_stride, num_tokens, z);
  }
  __syncwarp();
  cluster_arrive();  // the window of the key head has been read; `arrived` is initialised
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (t >= num_tokens) break;
    SharedToken& token = tokens[t];
    if (has_keys) {
      const float q = first.convolve(t);
      const float k = second.convolve(t);
      token.q[column] = q;
      token.k[column] = k;
      const float kk = warp_sum(k * k), qq = warp_sum(q * q), kq = warp_sum(k * q);
      if (lane == 0) {
        token.sums[0][warp] = kk;
        token.sums[1][warp] = qq;
        token.sums[2][warp] = kq;
      }
    } else if (has_values) {
      token.v[column] = first.convolve(t);
      const float closed = as_float(z[t]);
      token.opening[column] =
          (p.gate == NormGate::kSigmoid ? 1.0f : closed) / (1.0f + expf(-closed));
    }
  }
  if (has_token) {
    const float decay = a_in + dt_bias;
    tokens[own_token].alpha = expf(neg_exp_a_log * (decay > 20.0f ? decay : log1pf(expf(decay))));
    tokens[own_token].beta = 1.0f / (1.0f + expf(-b_in));
  }
  __syncthreads();
  if (has_keys) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (t >= num_tokens) break;
      SharedToken& token = tokens[t];
      const float k_factor = token.k_factor(), q_factor = token.q_factor();
      token.k[column] *= k_factor;
      token.q[column] *= q_factor;
      if (column == 0) token.kq = token.total(2) * k_factor * q_factor;
    }
  }
  __syncthreads();
  const StateSnapshot* const snapshots = p.batch.snapshots;
  const int32_t first_snapshot = p.batch.snapshot_start[b], end = p.batch.snapshot_start[b + 1];
  int32_t snapshot = first_snapshot;
#pragma unroll 1
  for (int t = 0; t < num_tokens; ++t) {
    SharedToken& token = tokens[t];
    rows.advance({.k = token.k,
                  .q = token.q,
                  .v = token.v,
                  .alpha = token.alpha,
                  .beta = token.beta,
                  .kq = token.kq},
                 s, token.y);
    for (; snapshot < end && snapshots[snapshot].num_tokens == t + 1; ++snapshot) {
      rows.store_snapshot(p.snapshots, snapshots[snapshot].slot, first_row, s);
    }
  }
  if constexpr (kSplit == 1) rows.store(state, s);
  __syncthreads();
  cluster_wait();
  constexpr int kOwnOctets = kRows / kOctet;
  // Whether the lane has an octet of token `warp`.
  const bool has_octet = warp < num_tokens && lane < kOwnOctets;
  float values[kOctet] = {};
  if (has_octet) {
    SharedToken& token = tokens[warp];
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kOctet; ++j) {
      values[j] = as_float(rounded<CudaBf16>(token.y[lane * kOctet + j]));
      sum = fmaf(values[j], values[j], sum);
    }
    float* const square = &token.squares[part * kOwnOctets + lane];
    if constexpr (kSplit == 1) {
      *square = sum;
    } else {
#pragma unroll
      for (int i = 0; i < kSplit; ++i) {
        send_to_block(square, squares_arrived, first_in_cluster + i, sum);
      }
    }
  }
  __syncwarp();  // all lanes of the warp have finished before one of them arrives
  if constexpr (kSplit == 1) {
    cluster_arrive();
  } else {
    rows.store(state, s);
  }
  const auto keep_windows = [&](int t, float* window) {
    if (has_values) {
      first.keep(t, window, p.C, v_channel);
    } else if (has_keys && keeps_keys) {
      first.keep(t, window, p.C, q_channel);
      second.keep(t, window, p.C, k_channel);
    }
  };
  snapshot = first_snapshot;
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (t >= num_tokens) break;
    for (; snapshot < end && snapshots[snapshot].num_tokens == t + 1; ++snapshot) {
      keep_windows(t, p.snapshot_windows + snapshots[snapshot].slot * p.snapshot_windows_stride);
    }
    if (t == num_tokens - 1) keep_windows(t, p.windows + slot * p.windows_stride);
  }
  __syncwarp();
  // Blocks of whole heads wait for each other before they end. Measured in front of a product: 8
  // sequences of 32 heads took 0.6 us longer when each block ended by itself.
  if constexpr (kSplit == 1) cluster_wait();
  if (warp >= num_tokens) return;
  if constexpr (kSplit > 1) sm90::wait(squares_arrived, 0);
  const SharedToken& token = tokens[warp];
  const float squares = warp_sum(lane < kOctets ? token.squares[lane] : 0.0f);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(kDim) + p.epsilon);
  if (!has_octet) return;
#pragma unroll
  for (int j = 0; j < kOctet; ++j) {
    const int own = lane * kOctet + j;
    values[j] = values[j] * scale * norm_weights[own] * token.opening[own];
  }
  store_octet(values, p.y + (row + warp) * p.y_stride + first_row + lane * kOctet);
}

template <int kSplit>
auto kernel_of(int64_t num_tokens) -> void (*)(Params) {
  if (num_tokens == 1) return delta_step_kernel<1, kSplit>;
  return num_tokens <= 4 ? delta_step_kernel<4, kSplit> : delta_step_kernel<kMostTokens, kSplit>;
}

// Number of blocks for each head: heads are split while every block can have a multiprocessor to
// itself, because a single one needs long to read and write a state of 64 KB. A head that shares
// its key head is split into at most two, for a small cluster: between products, one sequence of 32
// heads on 16 key heads took 5.3 us in halves, 5.6 in quarters. If each head has its own key head,
// two blocks share a multiprocessor: 8 sequences of 16 heads took 7.4 us in halves, 8.0 whole.
int64_t split_of(const CudaContext& context, int64_t num_heads, int64_t heads_per_key) {
  const int64_t most = heads_per_key == 1 ? 4 : 2;
  const int64_t each = heads_per_key == 1 ? 2 : 1;  // blocks that share a multiprocessor
  int64_t split = 1;
  while (split < most &&
         num_heads * split * 2 <= each * context.gpu.properties().num_multiprocessors &&
         heads_per_key * split * 2 <= kMostBlocks) {
    split *= 2;
  }
  return split;
}

bool is_aligned(const TensorView& x) { return reinterpret_cast<uintptr_t>(x.data) % 16 == 0; }

}  // namespace

bool delta_step_fits(const CudaContext& context, const DeltaStepArgs& args) {
  const ForwardContext& forward = *args.conv.forward;
  const int64_t Nk = args.rule.num_key_heads, Nv = args.rule.b.shape[1];
  const int64_t at_once = int64_t{2} * context.gpu.properties().num_multiprocessors;
  const int64_t each = forward.few_rows_each();
  return context.gpu.properties().major == 9 && !context.exact && each >= 1 && args.conv.silu &&
         forward.num_sequences() * Nv <= at_once && args.conv.x.dtype == DType::kBf16 &&
         args.conv.weight.shape[1] == kWindow + 1 && args.conv.weight.dense() &&
         is_aligned(args.conv.weight) && args.rule.key_dim == kDim && args.rule.value_dim == kDim &&
         Nv / Nk <= kMostBlocks && args.rule.a.shape[1] == Nv && args.rule.beta_scale == 1 &&
         args.rule.state.recurrent.row_stride % 4 == 0 && is_aligned(args.rule.state.recurrent) &&
         is_aligned(args.norm.weight) && args.norm.weight.shape[0] == kDim &&
         !args.norm.gate_first && args.norm.group_width == 0 && rows_are_aligned(args.norm.z) &&
         rows_are_aligned(args.norm.y);
}

Status delta_step_cuda(CudaContext& context, const DeltaStepArgs& args) {
  const MutableTensorView& snapshots = args.rule.snapshots.recurrent;
  const int64_t Nv = args.rule.b.shape[1];
  const Params params{.x = args.conv.x.as<CudaBf16>(),
                      .conv_weight = args.conv.weight.as<float>(),
                      .windows = args.conv.state.conv.as<float>(),
                      .snapshot_windows = args.conv.snapshots.conv.as<float>(),
                      .a = args.rule.a.as<float>(),
                      .b = args.rule.b.as<float>(),
                      .neg_exp_a_log = args.rule.neg_exp_a_log.as<float>(),
                      .dt_bias = args.rule.dt_bias.as<float>(),
                      .state = args.rule.state.recurrent.as<float>(),
                      .snapshots = {.data = snapshots.data,
                                    .scales = args.rule.snapshots.scales.as<float>(),
                                    .slot_stride = snapshots.row_stride,
                                    .scale_stride = args.rule.snapshots.scales.row_stride,
                                    .Dk = kDim,
                                    .dtype = snapshots.dtype},
                      .z = args.norm.z.as<CudaBf16>(),
                      .norm_weight = args.norm.weight.as<float>(),
                      .y = args.norm.y.as<CudaBf16>(),
                      .x_stride = args.conv.x.row_stride,
                      .windows_stride = args.conv.state.conv.row_stride,
                      .snapshot_windows_stride = args.conv.snapshots.conv.row_stride,
                      .a_stride = args.rule.a.row_stride,
                      .b_stride = args.rule.b.row_stride,
                      .state_stride = args.rule.state.recurrent.row_stride,
                      .z_stride = args.norm.z.row_stride,
                      .y_stride = args.norm.y.row_stride,
                      .C = args.conv.x.shape[1],
                      .Nk = static_cast<int>(args.rule.num_key_heads),
                      .Nv = static_cast<int>(Nv),
                      .epsilon = args.norm.epsilon,
                      .gate = args.norm.gate,
                      .batch = args.conv.forward->batch};
  const ForwardContext& forward = *args.conv.forward;
  const int64_t num_heads = forward.num_sequences() * Nv;
  const int64_t heads_per_key = Nv / args.rule.num_key_heads;
  const int64_t split = split_of(context, num_heads, heads_per_key);
  const int64_t each = forward.few_rows_each();
  const auto kernel = split == 4   ? kernel_of<4>(each)
                      : split == 2 ? kernel_of<2>(each)
                                   : kernel_of<1>(each);
  return launch(context, "delta_step", kernel, grid_of(num_heads * split), kThreads, params, 0,
                static_cast<unsigned>(heads_per_key * split));
}

}  // namespace heddle::ops
