// SPDX-License-Identifier: Apache-2.0
// Shared by the two kernels of decayed_linear_attention.h on CUDA: their parameters, the time step
// dt = clamp(softplus(a + dt_bias), dt_low, dt_high), and which kernel computes which sequence. A
// thread calls time_step() for one token and head, 8 bytes; each thread calls takes_chunks(). Used
// by decayed_linear_attention_cuda.cu (token by token) and decayed_linear_attention_chunks.cu
// (prompts).
#pragma once

#include <cstdint>

#include "ops/cuda/draft_tree.cuh"
#include "ops/linear_attention/decayed_linear_attention.h"
#include "ops/linear_attention/snapshot_rows.cuh"

namespace heddle::ops::decayed_attention {

struct Params {
  const void* vkq;
  const float* a;  // inputs of the time steps; null: all time steps are 1
  const float* decay;
  const float* dt_bias;
  const float* skip;  // factor of v in the output; null: no skip term
  void* y;
  float* state;
  SnapshotMatrices snapshots;
  DType dtype;  // dtype of vkq and y
  int64_t vkq_stride, a_stride, y_stride, state_stride;
  int64_t B, Nk, Nv, Dk, Dv;
  float dt_low, dt_high;
  // Fewest new tokens of a sequence for the chunked kernel, which computes no trees.
  int64_t chunked_from;
  DeviceBatch batch;
};

__device__ inline float time_step(const Params& p, int64_t row, int64_t head) {
  if (p.a == nullptr) return 1.0f;
  const float x = p.a[row * p.a_stride + head] + p.dt_bias[head];
  return fminf(fmaxf(x > 20.0f ? x : log1pf(expf(x)), p.dt_low), p.dt_high);
}

__device__ inline bool takes_chunks(const Params& p, int64_t sequence, int64_t num_tokens) {
  return num_tokens >= p.chunked_from &&
         num_chain_rows(p.batch, sequence, num_tokens) == num_tokens;
}

// Whether the chunked kernel supports the shapes and strides.
[[nodiscard]] bool chunks_fit(const CudaContext& context, const DecayedLinearAttentionArgs& args);

// Computes the sequences for which takes_chunks() is true; leaves the others unchanged.
Status launch_chunks(CudaContext& context, const Params& params);

}  // namespace heddle::ops::decayed_attention
