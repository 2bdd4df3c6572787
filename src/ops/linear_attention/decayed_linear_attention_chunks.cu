// SPDX-License-Identifier: Apache-2.0
// The recurrence of decayed_linear_attention.h over prompts, up to 64 tokens at a time (Dao and Gu,
// arXiv:2405.21060, section 6), with c_t = decay (dt_1 + ... + dt_t) within a chunk of C tokens:
//   y_t = exp(c_t) S'q_t + sum over s <= t of exp(c_t - c_s) dt_s (k_s'q_t) v_s + skip v_t
//   S <- exp(c_C) S + sum over s of exp(c_C - c_s) k_s (dt_s v_s)'
// A block computes 32 value rows of one head of one sequence through its chunks: a warp has 16
// tokens of y and a quarter of the state's columns, in registers. Products are of bf16 with fp32
// sums (mma.sync). Factors that are not bf16 numbers (the state, the weights of pairs, scaled
// values) are each the sum of two bf16 numbers, which keeps 16 bits. Flops: 2 * 64 * (64 Dk + 128 *
// 32 + 4 * 32 Dk) a chunk and block; bytes: v, k, q and y once a block; the next chunk is copied
// while one is computed. Used in fast mode, in bf16 with Dk of 64 or 128 and Dv a multiple of 32,
// for sequences for which takes_chunks() is true. Chunks end at each multiple of 64 of the
// sequence's positions and at each snapshot, so that a prompt has the same bits in one step and in
// several that end there.
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/cuda/warp_matrix.cuh"
#include "ops/linear_attention/decayed_linear_attention.cuh"

namespace heddle::ops::decayed_attention {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kChunk = 64;   // most tokens of a chunk
constexpr int kValues = 32;  // value rows that a block computes
// Numbers after each row in shared memory, so that rows are in different banks.
constexpr int kPadding = 8;

template <int kKeys>
struct Shared {
  struct Stage {
    CudaBf16 k[kChunk][kKeys + kPadding];
    CudaBf16 q[kChunk][kKeys + kPadding];
    CudaBf16 v[kChunk][kValues + kPadding];
  };

  Stage stages[2];
  // Two factors, each stored as the sum of two bf16: exp(c_C - c_s) dt_s v_s, and the state before
  // the chunk.
  CudaBf16 scaled[2][kChunk][kValues + kPadding];
  CudaBf16 state[2][kValues][kKeys + kPadding];
  float rows[kValues][kKeys + 4];  // the state, for storing a snapshot
  float dt[kChunk];                // time steps; zeros after the last token
  float c[kChunk];                 // after the last token the same as at the last token
};

// fp32 numbers as two registers of bf16: the rounded values and the remainders.
struct Split {
  uint32_t high, low;

  __device__ Split(float first, float second) : high(pack_bf16(first, second)) {
    const auto rest = [](float value) { return value - __bfloat162float(__float2bfloat16(value)); };
    low = pack_bf16(rest(first), rest(second));
  }
};

// A chunk: tokens [first, first + count) of the sequence.
struct Chunk {
  int first = 0, count = 0;
};

template <int kKeys>
class Block {
 public:
  __device__ Block(const Params& p, Shared<kKeys>& s, int64_t sequence, int64_t head, int value)
      : p_(p),
        s_(s),
        head_(head),
        value_(value),
        first_row_(p.batch.query_start[sequence]),
        num_tokens_(p.batch.query_start[sequence + 1] - p.batch.query_start[sequence]),
        snapshot_(p.batch.snapshot_start[sequence]),
        snapshots_end_(p.batch.snapshot_start[sequence + 1]) {
    const int64_t slot = p.batch.state_slots[sequence];
    own_state_ = p.state + slot * p.state_stride + (head * p.Dv + value) * kKeys;
    context_ = p.batch.context_lens[sequence];
    decay_ = p.decay[head];
    skip_ = p.skip == nullptr ? 0.0f : p.skip[head];
  }

  __device__ void run() {
    Chunk chunk = chunk_from(0, snapshot_);
    start_loads(chunk, s_.stages[0]);
    load_steps(chunk);
    load_state();
    for (int stage = 0;; stage ^= 1) {
      share_state();
      if (warp() == 0) share_steps();
      wait_copies<0>();
      __syncthreads();
      int behind = snapshot_;  // index of the first snapshot after this chunk
      while (behind < snapshots_end_ && tokens_of(behind) <= chunk.first + chunk.count) ++behind;
      const Chunk next = chunk_from(chunk.first + chunk.count, behind);
      if (next.count > 0) {
        start_loads(next, s_.stages[stage ^ 1]);
        load_steps(next);
      }
      const float total = s_.c[kChunk - 1];
      share_scaled(s_.stages[stage], total);
      write_outputs(s_.stages[stage], chunk);
      __syncthreads();
      advance(s_.stages[stage], total);
      for (; snapshot_ < behind; ++snapshot_) store_snapshot(p_.batch.snapshots[snapshot_].slot);
      if (next.count == 0) break;
      chunk = next;
    }
    store_state();
  }

 private:
  static constexpr int kColumns = kKeys / kWarps;  // columns of the state per warp
  static constexpr int kTiles = kColumns / 8;

  [[nodiscard]] static __device__ int warp() { return static_cast<int>(threadIdx.x) / kWarp; }

  [[nodiscard]] static __device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

  [[nodiscard]] __device__ int tokens_of(int snapshot) const {
    return p_.batch.snapshots[snapshot].num_tokens;
  }

  // The chunk that begins at token `first`; snapshots from index `snapshot` on are after `first`.
  [[nodiscard]] __device__ Chunk chunk_from(int first, int snapshot) const {
    int count = min(kChunk - (context_ + first) % kChunk, num_tokens_ - first);
    if (snapshot < snapshots_end_) count = min(count, tokens_of(snapshot) - first);
    return {first, count};
  }

  // Copies 16 bytes at a time; zeros after the chunk's last token.
  __device__ void start_loads(const Chunk& chunk, typename Shared<kKeys>::Stage& to) const {
    const auto* vkq = static_cast<const CudaBf16*>(p_.vkq);
    const int64_t k_at = p_.Nv * p_.Dv + head_ * p_.Nk / p_.Nv * kKeys;
    const int64_t q_at = k_at + p_.Nk * kKeys;
    const int64_t v_at = head_ * p_.Dv + value_;
    constexpr int kOctets = kKeys / kOctet;
    for (int i = static_cast<int>(threadIdx.x); i < kChunk * kOctets; i += kThreads) {
      const int t = i / kOctets, c = i % kOctets * kOctet;
      const bool real = t < chunk.count;
      const CudaBf16* row = vkq + (first_row_ + chunk.first + (real ? t : 0)) * p_.vkq_stride + c;
      copy_async(&to.k[t][c], row + k_at, real);
      copy_async(&to.q[t][c], row + q_at, real);
    }
    constexpr int kValueOctets = kValues / kOctet;
    for (int i = static_cast<int>(threadIdx.x); i < kChunk * kValueOctets; i += kThreads) {
      const int t = i / kValueOctets, c = i % kValueOctets * kOctet;
      const bool real = t < chunk.count;
      const CudaBf16* row = vkq + (first_row_ + chunk.first + (real ? t : 0)) * p_.vkq_stride;
      copy_async(&to.v[t][c], row + v_at + c, real);
    }
    commit_copies();
  }

  // The first warp computes the time steps of the next chunk and keeps them, two tokens in each
  // lane.
  __device__ void load_steps(const Chunk& chunk) {
    if (warp() != 0) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = lane() * 2 + i;
      steps_[i] = t < chunk.count ? time_step(p_, first_row_ + chunk.first + t, head_) : 0.0f;
    }
  }

  __device__ void share_steps() {
    const float first = steps_[0] * decay_, second = steps_[1] * decay_;
    float until = first + second;  // sum over this lane's tokens and all before
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const float more = __shfl_up_sync(0xffffffffu, until, distance);
      if (lane() >= distance) until += more;
    }
    s_.dt[lane() * 2] = steps_[0];
    s_.dt[lane() * 2 + 1] = steps_[1];
    s_.c[lane() * 2] = until - second;
    s_.c[lane() * 2 + 1] = until;
  }

  // Value row and column of the number of the state in register i of tile (m, n).
  [[nodiscard]] static __device__ int row_of(int m, int i) {
    return m * 16 + lane() / 4 + i / 2 * 8;
  }

  [[nodiscard]] static __device__ int column_of(int n) {
    return warp() * kColumns + n * 8 + lane() % 4 * 2;
  }

  // Calls body(row, column, pair) for each two adjacent numbers of the state.
  template <typename Body>
  __device__ void for_each_pair(const Body& body) {
#pragma unroll
    for (int m = 0; m < kValues / 16; ++m) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) body(row_of(m, i), column_of(n), &state_[m][n][i]);
      }
    }
  }

  __device__ void load_state() {
    for_each_pair([&](int row, int column, float* pair) {
      float2 numbers{0, 0};
      if (context_ > 0) {
        numbers = *reinterpret_cast<const float2*>(own_state_ + row * kKeys + column);
      }
      pair[0] = numbers.x;
      pair[1] = numbers.y;
    });
  }

  __device__ void store_state() {
    for_each_pair([&](int row, int column, const float* pair) {
      *reinterpret_cast<float2*>(own_state_ + row * kKeys + column) = float2{pair[0], pair[1]};
    });
  }

  __device__ void share_state() {
    for_each_pair([&](int row, int column, const float* pair) {
      const Split split(pair[0], pair[1]);
      *reinterpret_cast<uint32_t*>(&s_.state[0][row][column]) = split.high;
      *reinterpret_cast<uint32_t*>(&s_.state[1][row][column]) = split.low;
    });
  }

  // Stores a snapshot of the state, rows as in store_snapshot_row().
  __device__ void store_snapshot(int64_t slot) {
    for_each_pair([&](int row, int column, const float* pair) {
      *reinterpret_cast<float2*>(&s_.rows[row][column]) = float2{pair[0], pair[1]};
    });
    __syncthreads();
    for (int row = warp(); row < kValues; row += kWarps) {
      float numbers[kKeys / kWarp];
#pragma unroll
      for (int i = 0; i < kKeys / kWarp; ++i) numbers[i] = s_.rows[row][lane() + i * kWarp];
      store_snapshot_row(p_.snapshots, slot, head_ * p_.Dv + value_ + row, numbers);
    }
    __syncthreads();
  }

  // Stores exp(c_C - c_s) dt_s v_s in shared memory.
  __device__ void share_scaled(const typename Shared<kKeys>::Stage& stage, float total) {
    for (int i = static_cast<int>(threadIdx.x); i < kChunk * kValues / 2; i += kThreads) {
      const int t = i / (kValues / 2), c = i % (kValues / 2) * 2;
      const float factor = expf(total - s_.c[t]) * s_.dt[t];
      const Split split(factor * __bfloat162float(stage.v[t][c]),
                        factor * __bfloat162float(stage.v[t][c + 1]));
      *reinterpret_cast<uint32_t*>(&s_.scaled[0][t][c]) = split.high;
      *reinterpret_cast<uint32_t*>(&s_.scaled[1][t][c]) = split.low;
    }
  }

  // A warp computes y of 16 tokens: a lane has rows l / 4 and l / 4 + 8 of its tiles.
  __device__ void write_outputs(const typename Shared<kKeys>::Stage& stage, const Chunk& chunk) {
    const int first = warp() * 16;
    if (first >= chunk.count) return;
    const int low = lane() % 8, second = lane() / 8 % 2 * 8, third = lane() / 16 * 8;
    uint32_t q[kKeys / 16][4];
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      load_matrices(q[k], &stage.q[first + low + second][k * 16 + third]);
    }
    // Adds the contribution of the state before the chunk.
    float y[kValues / 8][4] = {};
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
        for (int n = 0; n < kValues / 8; n += 2) {
          uint32_t b[4];
          load_matrices(b, &s_.state[part][n * 8 + third + low][k * 16 + second]);
          multiply_bf16(y[n], q[k], {b[0], b[1]});
          multiply_bf16(y[n + 1], q[k], {b[2], b[3]});
        }
      }
    }
    const int rows[2] = {first + lane() / 4, first + lane() / 4 + 8};
    const float c[2] = {s_.c[rows[0]], s_.c[rows[1]]};
    const float factors[2] = {expf(c[0]), expf(c[1])};
#pragma unroll
    for (int n = 0; n < kValues / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) y[n][i] *= factors[i / 2];
    }
    // Adds the contributions of tokens up to the row itself, 16 at a time.
    for (int s = 0; s <= first; s += 16) {
      float weights[2][4] = {};
#pragma unroll
      for (int k = 0; k < kKeys / 16; ++k) {
        uint32_t b[4];
        load_matrices(b, &stage.k[s + third + low][k * 16 + second]);
        multiply_bf16(weights[0], q[k], {b[0], b[1]});
        multiply_bf16(weights[1], q[k], {b[2], b[3]});
      }
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int from = s + tile * 8 + lane() % 4 * 2 + i % 2;
          const bool sees = from <= rows[i / 2];
          const float factor = sees ? expf(c[i / 2] - s_.c[from]) * s_.dt[from] : 0.0f;
          weights[tile][i] = sees ? weights[tile][i] * factor : 0.0f;
        }
      }
      const Split split[4] = {
          {weights[0][0], weights[0][1]},
          {weights[0][2], weights[0][3]},
          {weights[1][0], weights[1][1]},
          {weights[1][2], weights[1][3]},
      };
      const uint32_t high[4] = {split[0].high, split[1].high, split[2].high, split[3].high};
      const uint32_t rest[4] = {split[0].low, split[1].low, split[2].low, split[3].low};
#pragma unroll
      for (int n = 0; n < kValues / 8; n += 2) {
        uint32_t b[4];
        load_matrices_transposed(b, &stage.v[s + second + low][n * 8 + third]);
        multiply_bf16(y[n], high, {b[0], b[1]});
        multiply_bf16(y[n], rest, {b[0], b[1]});
        multiply_bf16(y[n + 1], high, {b[2], b[3]});
        multiply_bf16(y[n + 1], rest, {b[2], b[3]});
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rows[half] >= chunk.count) continue;
      CudaBf16* to = static_cast<CudaBf16*>(p_.y) +
                     (first_row_ + chunk.first + rows[half]) * p_.y_stride + head_ * p_.Dv + value_;
#pragma unroll
      for (int n = 0; n < kValues / 8; ++n) {
        const int column = n * 8 + lane() % 4 * 2;
        const CudaBf16* own = &stage.v[rows[half]][column];
        *reinterpret_cast<uint32_t*>(to + column) =
            pack_bf16(fmaf(skip_, __bfloat162float(own[0]), y[n][half * 2]),
                      fmaf(skip_, __bfloat162float(own[1]), y[n][half * 2 + 1]));
      }
    }
  }

  // Computes the state after the chunk.
  __device__ void advance(const typename Shared<kKeys>::Stage& stage, float total) {
    const float factor = expf(total);
    for_each_pair([&](int, int, float* pair) {
      pair[0] *= factor;
      pair[1] *= factor;
    });
    const int low = lane() % 8, second = lane() / 8 % 2 * 8, third = lane() / 16 * 8;
#pragma unroll
    for (int t = 0; t < kChunk; t += 16) {
      uint32_t keys[kTiles / 2][4];
#pragma unroll
      for (int n = 0; n < kTiles / 2; ++n) {
        load_matrices_transposed(keys[n],
                                 &stage.k[t + second + low][warp() * kColumns + n * 16 + third]);
      }
#pragma unroll
      for (int part = 0; part < 2; ++part) {
#pragma unroll
        for (int m = 0; m < kValues / 16; ++m) {
          uint32_t a[4];
          load_matrices_transposed(a, &s_.scaled[part][t + third + low][m * 16 + second]);
#pragma unroll
          for (int n = 0; n < kTiles / 2; ++n) {
            multiply_bf16(state_[m][2 * n], a, {keys[n][0], keys[n][1]});
            multiply_bf16(state_[m][2 * n + 1], a, {keys[n][2], keys[n][3]});
          }
        }
      }
    }
  }

  const Params& p_;
  Shared<kKeys>& s_;
  const int64_t head_;
  const int value_;
  const int64_t first_row_;
  const int num_tokens_;
  int snapshot_;
  const int snapshots_end_;
  float* own_state_;
  int context_;
  float decay_, skip_;
  float steps_[2];
  float state_[kValues / 16][kTiles][4];
};

template <int kKeys>
__global__ void __launch_bounds__(kThreads) chunks_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  extern __shared__ __align__(16) uint8_t raw[];
  const int64_t slabs = p.Dv / kValues;
  const int64_t slab = blockIdx.x % slabs, head = blockIdx.x / slabs % p.Nv;
  const int64_t sequence = blockIdx.x / slabs / p.Nv;
  const int64_t num_tokens = p.batch.query_start[sequence + 1] - p.batch.query_start[sequence];
  if (p.batch.state_slots[sequence] < 0 || !takes_chunks(p, sequence, num_tokens)) return;
  Block<kKeys> block(p, *reinterpret_cast<Shared<kKeys>*>(raw), sequence, head,
                     static_cast<int>(slab) * kValues);
  block.run();
}

template <int kKeys>
Status launch_keys(CudaContext& context, const Params& params) {
  const size_t bytes = sizeof(Shared<kKeys>);
  HEDDLE_RETURN_IF_ERROR(allow_shared(chunks_kernel<kKeys>, bytes));
  return launch(context, "decayed_linear_attention chunks", chunks_kernel<kKeys>,
                grid_of(params.B * params.Nv * (params.Dv / kValues)), kThreads, params, bytes);
}

}  // namespace

bool chunks_fit(const CudaContext& context, const DecayedLinearAttentionArgs& args) {
  const int64_t Dk = args.key_dim, Dv = args.value_dim;
  const auto is_aligned = [](const void* data, int64_t stride, int64_t size, uintptr_t bytes) {
    return reinterpret_cast<uintptr_t>(data) % bytes == 0 &&
           stride * size % static_cast<int64_t>(bytes) == 0;
  };
  const size_t bytes = Dk == 64 ? sizeof(Shared<64>) : sizeof(Shared<128>);
  return !context.exact && args.vkq.dtype == DType::kBf16 && (Dk == 64 || Dk == 128) &&
         context.gpu.properties().shared_bytes >= static_cast<int64_t>(bytes) &&
         Dv % kValues == 0 && is_aligned(args.vkq.data, args.vkq.row_stride, 2, 16) &&
         is_aligned(args.y.data, args.y.row_stride, 2, 4) &&
         is_aligned(args.state.recurrent.data, args.state.recurrent.row_stride, 4, 8);
}

Status launch_chunks(CudaContext& context, const Params& params) {
  return params.Dk == 64 ? launch_keys<64>(context, params) : launch_keys<128>(context, params);
}

}  // namespace heddle::ops::decayed_attention
