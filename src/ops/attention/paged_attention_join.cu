// SPDX-License-Identifier: Apache-2.0
// The second kernel of split attention. A row has parts i with maximum m_i, sum s_i and values o_i:
// y = v_scale * sum of o_i exp(m_i - m) / sum of s_i exp(m_i - m), m the largest of the m_i and the
// sink. A block joins one row (token, query head) in 64 or all D channels. A thread has four
// channels of every kGroups-th part; then the groups are added in order, two channels in each
// thread. Bytes: 4 a channel and part. Launched after each split_kernel; blocks of rows without
// several parts do nothing.
#include "ops/attention/paged_attention_split.cuh"
#include "ops/cuda/warp_matrix.cuh"

namespace heddle::ops::split_attention {
namespace {

constexpr int kJoinThreads = 256;

// A block joins the parts of kChannels channels of one row. A thread has four channels; groups of
// threads read every kGroups-th part, several at once, and are then added in order. Reads 4 bytes
// for each channel and part. If a step has few rows, a block has only 64 channels, so that the work
// is spread over more multiprocessors.
template <int kDim, int kChannels>
__global__ void __launch_bounds__(kJoinThreads) join_kernel(const __grid_constant__ Params p) {
  constexpr int kSlices = kDim / kChannels;
  constexpr int kLanes = kChannels / 4;
  constexpr int kGroups = kJoinThreads / kLanes;
  constexpr int kAtOnce = 9;  // with 16 groups enough for a sequence whose parts are in all blocks
  __shared__ float maxima[kGroups], sums[kGroups];
  __shared__ __align__(16) float results[kGroups][kChannels];
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / kLanes;
  const int num_heads = p.num_kv_heads * p.group;
  const int row = static_cast<int>(blockIdx.x) / kSlices;
  const int first_channel = static_cast<int>(blockIdx.x) % kSlices * kChannels;
  const int t = row / num_heads;
  const int head = row % num_heads;
  // Uploaded with the step, like the lengths: may be read before the wait.
  const int b = p.batch.row_sequences[t];
  const SplitExtent extent = b < 0 ? SplitExtent() : extent_of(p, b);
  const int kv_head = head / p.group;
  const int head_on_line = kv_head % p.heads_on_line;
  const int at = b < 0 ? 0 : (t - p.batch.query_start[b]) * p.group + head % p.group;
  const int chunks = chunks_of(p, extent.num_tokens);
  const int index_of_unit = kv_head / p.heads_on_line * chunks + at / kColumns;
  wait_for_inputs();
  if (extent.num_tokens == 0) return;
  const SplitShares shares = p.parts.plan->shares;
  const int start = p.parts.plan->starts[b];
  if (shares.whole) return;
  const SplitUnit unit = unit_of(shares, extent, b, index_of_unit, start).span;
  const int first = unit.first_share(shares);
  const int num_parts = unit.last_share(shares) - first + 1;
  if (num_parts == 1) return;
  const auto row_of = [&](int i) {
    const int part = split_part(first + i, i == 0) * p.heads_on_line + head_on_line;
    return part * kColumns + at % kColumns;
  };
  const float* outputs = p.parts.outputs + first_channel + thread % kLanes * 4;
  float top = -INFINITY;
  float sum = 0;
  float4 total{0, 0, 0, 0};
  for (int begin = group; begin < num_parts; begin += kGroups * kAtOnce) {
    float their_maxima[kAtOnce], their_sums[kAtOnce];
    float4 values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = begin + i * kGroups;
      const bool real = index < num_parts;
      const int part = row_of(real ? index : begin);
      their_maxima[i] = real ? p.parts.maxima[part] : -INFINITY;
      their_sums[i] = real ? p.parts.sums[part] : 0.0f;
      values[i] = real ? *reinterpret_cast<const float4*>(outputs + int64_t{part} * kDim)
                       : float4{0, 0, 0, 0};
    }
    const float before = top;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) top = fmaxf(top, their_maxima[i]);
    const float base = top == -INFINITY ? 0.0f : top;
    const float shrink = exp2f(before - base);
    sum *= shrink;
    total.x *= shrink;
    total.y *= shrink;
    total.z *= shrink;
    total.w *= shrink;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float share = exp2f(their_maxima[i] - base);
      sum = fmaf(their_sums[i], share, sum);
      total.x = fmaf(values[i].x, share, total.x);
      total.y = fmaf(values[i].y, share, total.y);
      total.z = fmaf(values[i].z, share, total.z);
      total.w = fmaf(values[i].w, share, total.w);
    }
  }
  if (thread % kLanes == 0) {
    maxima[group] = top;
    sums[group] = sum;
  }
  *reinterpret_cast<float4*>(&results[group][thread % kLanes * 4]) = total;
  __syncthreads();
  if (thread * 2 >= kChannels) return;
  top = maxima[0];
#pragma unroll
  for (int g = 1; g < kGroups; ++g) top = fmaxf(top, maxima[g]);
  sum = 0;
  float2 own{0, 0};
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const float share = exp2f(maxima[g] - top);
    const float2 two = *reinterpret_cast<const float2*>(&results[g][thread * 2]);
    sum = fmaf(sums[g], share, sum);
    own.x = fmaf(two.x, share, own.x);
    own.y = fmaf(two.y, share, own.y);
  }
  const float factor = output_factor(p, head, top, sum);
  *reinterpret_cast<uint32_t*>(p.y + t * p.y_stride + int64_t{head} * kDim + first_channel +
                               thread * 2) = pack_bf16(own.x * factor, own.y * factor);
}

template <int kDim>
Status join(CudaContext& context, const Params& params) {
  constexpr int kChannels = 64;
  // With so few rows, one block for each would leave multiprocessors idle.
  constexpr int64_t kFewRows = 256;
  const char* const name = "paged_attention join";
  const int64_t rows = int64_t{params.num_rows} * params.num_kv_heads * params.group;
  if (rows > kFewRows) {
    return launch(context, name, join_kernel<kDim, kDim>, grid_of(rows), kJoinThreads, params);
  }
  return launch(context, name, join_kernel<kDim, kChannels>, grid_of(rows * (kDim / kChannels)),
                kJoinThreads, params);
}

}  // namespace

Status launch_join(CudaContext& context, const Params& params, int64_t head_dim) {
  if (head_dim == 64) return join<64>(context, params);
  if (head_dim == 128) return join<128>(context, params);
  if (head_dim == 256) return join<256>(context, params);
  return join<512>(context, params);
}

}  // namespace heddle::ops::split_attention
