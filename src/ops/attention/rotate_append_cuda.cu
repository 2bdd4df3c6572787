// SPDX-License-Identifier: Apache-2.0
// q.y = rope(norm(q)); page(k) = rope(norm(k)) / k_scale; page(v) = v / v_scale: one launch instead
// of four.
// A block processes 8 heads of one row of the step, queries, then keys, then values; all its
// threads compute the row's angles. A warp processes a head, a lane every 32nd pair of channels
// (rope/rotate_head.cuh). Bytes: 2 * (Nq + 2 * Nkv) * D elements a row: bandwidth-bound; decode is
// bound by the launch. Used if the graph has a chain of rope, rope and paged_attention, and
// rotate_append_fits().
#include "ops/attention/rotate_append.h"
#include "ops/cuda/any_dtype.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/page_table.cuh"
#include "ops/rope/rotate_head.cuh"

namespace heddle::ops {

namespace {

constexpr int kHeadsPerBlock = 8;
constexpr int kThreads = kHeadsPerBlock * kWarp;

// The rows of keys or values that are stored in one pool.
struct Target {
  void* pool;
  int64_t page_stride;
  DType dtype;
  float scale;
};

struct Params {
  const void* q;
  const void* k;
  const void* v;
  void* q_out;
  Target keys, values;
  const int32_t* positions;
  Frequencies frequencies;
  int64_t q_stride, k_stride, v_stride, q_out_stride;
  int64_t num_heads, num_kv_heads;  // query heads; key and value heads
  Rotation q_rotation, k_rotation;
  PageTable pages;
  const int32_t* first_stored;  // tokens of each sequence that are stored already
  DeviceBatch batch;
};

// A row of blocks processes a row of the step, a warp one head of its queries, keys or values.
// Angles are computed while the projection still runs, because positions were uploaded with the
// step. Attention is allowed to start then, too, and prefetches older pages.
template <typename Scalar>
__global__ void __launch_bounds__(kThreads) rotate_append_kernel(const __grid_constant__ Params p) {
  __shared__ float cosines[kMaxRotaryPairs];
  __shared__ float sines[kMaxRotaryPairs];
  let_next_kernel_start();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = blockIdx.x;
  form_angles(p.frequencies, p.q_rotation.half, p.positions[row], cosines, sines);
  const int64_t D = p.q_rotation.D;
  int64_t head = int64_t{blockIdx.y} * kHeadsPerBlock + threadIdx.x / kWarp;
  const int64_t b = p.batch.row_sequences[row];
  // Index in the pool where the row's key or value is stored; -1: it is not stored.
  int64_t to = -1;
  if (b >= 0 && p.batch.state_slots[b] >= 0) {
    const int64_t position = p.batch.context_lens[b] + row - p.batch.query_start[b];
    if (position >= p.first_stored[b]) {
      to = p.pages.page_of(b, position);
      const int64_t token = position % p.pages.page_size * p.num_kv_heads * D;
      // Both pools have the same page ids, but their pages may differ in size.
      if (head < p.num_heads + p.num_kv_heads) {
        to = to * p.keys.page_stride + token;
      } else {
        to = to * p.values.page_stride + token;
      }
    }
  }
  await_kernel_before();
  __syncthreads();
  if (head < p.num_heads) {
    Scalar* y = static_cast<Scalar*>(p.q_out) + row * p.q_out_stride + head * D;
    rotate_head(p.q_rotation, static_cast<const Scalar*>(p.q) + row * p.q_stride + head * D,
                cosines, sines, [&](int64_t d, float value) { y[d] = rounded<Scalar>(value); });
    return;
  }
  if (to < 0) return;
  head -= p.num_heads;
  if (head < p.num_kv_heads) {
    rotate_head(p.k_rotation, static_cast<const Scalar*>(p.k) + row * p.k_stride + head * D,
                cosines, sines, [&](int64_t d, float value) {
                  const float stored = as_float(rounded<Scalar>(value));
                  store_number(p.keys.pool, p.keys.dtype, to + head * D + d,
                               __fdiv_rn(stored, p.keys.scale));
                });
    return;
  }
  head -= p.num_kv_heads;
  if (head >= p.num_kv_heads) return;
  const Scalar* v = static_cast<const Scalar*>(p.v) + row * p.v_stride + head * D;
  for (int64_t d = lane; d < D; d += kWarp) {
    store_number(p.values.pool, p.values.dtype, to + head * D + d,
                 __fdiv_rn(as_float(v[d]), p.values.scale));
  }
}

}  // namespace

Status rotate_append_cuda(CudaContext& context, const RotateAppendArgs& args) {
  const PagedAttentionArgs& attention = args.attention;
  const auto target = [](const MutableTensorView& pool, float scale) {
    return Target{pool.data, pool.row_stride, pool.dtype, scale};
  };
  const int64_t T = args.q.x.shape[0];
  const Params params{.q = args.q.x.data,
                      .k = args.k.x.data,
                      .v = attention.v.data,
                      .q_out = args.q.y.data,
                      .keys = target(attention.kv.k, attention.kv.k_scale),
                      .values = target(attention.kv.v, attention.kv.v_scale),
                      .positions = args.q.positions.as<int32_t>(),
                      .frequencies = Frequencies::of(args.q),
                      .q_stride = args.q.x.row_stride,
                      .k_stride = args.k.x.row_stride,
                      .v_stride = attention.v.row_stride,
                      .q_out_stride = args.q.y.row_stride,
                      .num_heads = args.q.x.shape[1] / attention.head_dim,
                      .num_kv_heads = attention.num_kv_heads,
                      .q_rotation = Rotation::of(args.q),
                      .k_rotation = Rotation::of(args.k),
                      .pages = page_table_of(*attention.forward, attention.kv.table),
                      .first_stored = first_stored_of(*attention.forward, attention.kv.table),
                      .batch = attention.forward->batch};
  const int64_t heads = params.num_heads + 2 * params.num_kv_heads;
  const dim3 grid(grid_of(T).x, static_cast<unsigned>(ceil_div(heads, kHeadsPerBlock)));
  return with_scalar(args.q.x.dtype, [&](auto scalar) {
    return launch(context, "rotate_append", rotate_append_kernel<typename decltype(scalar)::type>,
                  grid, kThreads, params);
  });
}

}  // namespace heddle::ops
