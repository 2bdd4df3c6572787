// SPDX-License-Identifier: Apache-2.0
// StateRows: rows of a head's state in the registers of a warp, and one token of the gated delta
// rule applied to them:
//   d = beta (v - alpha S' k)    y = alpha S' q + d (k.q)    S <- alpha S + k d'
// Eight lanes share a row, each with four neighbouring columns of every 32, so that a warp reads
// whole cache lines. A lane has kPasses rows, and all its loads are in flight together. Bytes: 8 *
// 128 a row, read once and written once; about 8 flops a number and token. Used by the kernels for
// decode, gated_delta_rule_step.cu and delta_step_sm90.cu.
#pragma once

#include "ops/cuda/reduce.cuh"
#include "ops/linear_attention/snapshot_rows.cuh"

namespace heddle::ops {

template <int kPasses>  // rows that each lane has a part of
struct StateRows {
  static constexpr int kDim = 128;  // columns of the state
  static constexpr int kLanes = 8;  // lanes that share a row
  static constexpr int kQuads = 4;  // groups of four neighbouring columns that a lane has in a row
  static constexpr int kRowsAtOnce = kWarp / kLanes;
  static constexpr int kWarpRows = kRowsAtOnce * kPasses;

  using Numbers = float4[kPasses][kQuads];

  int part;   // index of the lane among the eight that share its rows
  int first;  // first of the lane's rows in the block; the others are kRowsAtOnce apart

  __device__ StateRows(int lane, int warp)
      : part(lane % kLanes), first(warp * kWarpRows + lane / kLanes) {}

  // `state` points to row `first`.
  __device__ void load(const float* state, bool fresh, Numbers& s) const {
#pragma unroll
    for (int r = 0; r < kPasses; ++r) {
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        const float* from = state + offset(r, i);
        s[r][i] = fresh ? float4{0, 0, 0, 0} : __ldcs(reinterpret_cast<const float4*>(from));
      }
    }
  }

  __device__ void store(float* state, const Numbers& s) const {
#pragma unroll
    for (int r = 0; r < kPasses; ++r) {
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        __stcs(reinterpret_cast<float4*>(state + offset(r, i)), s[r][i]);
      }
    }
  }

  // A token: k and q, normalised, and v, indexed by row of the block, all in shared memory.
  struct Token {
    const float* k;
    const float* q;
    const float* v;
    float alpha, beta, kq;  // kq = k.q
  };

  // Applies a token. With p = S k and o = S q of the old state:
  //
  //   d = beta (v - alpha p)     y = alpha o + d (k.q)     S <- alpha S + d k
  __device__ void advance(const Token& token, Numbers& s, float* y) const {
    float4 k[kQuads];
    float p1[kPasses] = {}, p2[kPasses] = {};
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      k[i] = reinterpret_cast<const float4*>(token.k)[i * kLanes + part];
      const float4 q = reinterpret_cast<const float4*>(token.q)[i * kLanes + part];
#pragma unroll
      for (int r = 0; r < kPasses; ++r) {
        p1[r] = dot(s[r][i], k[i], p1[r]);
        p2[r] = dot(s[r][i], q, p2[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kPasses; ++r) {
      const int row = first + r * kRowsAtOnce;
      const float d = token.beta * (token.v[row] - token.alpha * row_sum(p1[r]));
      const float out = fmaf(d, token.kq, token.alpha * row_sum(p2[r]));
      if (part == 0) y[row] = out;
#pragma unroll
      for (int i = 0; i < kQuads; ++i) s[r][i] = faded_plus(s[r][i], token.alpha, k[i], d);
    }
  }

  // Stores the rows in the format of snapshots. `block_row` is the index of the block's first row
  // in the slot.
  __device__ void store_snapshot(const SnapshotMatrices& snapshots, int64_t slot, int64_t block_row,
                                 const Numbers& s) const {
#pragma unroll
    for (int r = 0; r < kPasses; ++r) {
      store_snapshot_row(snapshots, slot, block_row + first + r * kRowsAtOnce, s[r]);
    }
  }

 private:
  [[nodiscard]] __device__ int64_t offset(int r, int i) const {
    return r * kRowsAtOnce * kDim + i * (kLanes * 4) + part * 4;
  }

  static __device__ float row_sum(float value) {
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
  }

  static __device__ float dot(const float4& a, const float4& b, float sum) {
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
    sum = fmaf(a.z, b.z, sum);
    return fmaf(a.w, b.w, sum);
  }

  static __device__ float4 faded_plus(const float4& s, float alpha, const float4& k, float weight) {
    return {fmaf(weight, k.x, alpha * s.x), fmaf(weight, k.y, alpha * s.y),
            fmaf(weight, k.z, alpha * s.z), fmaf(weight, k.w, alpha * s.w)};
  }

  __device__ void store_snapshot_row(const SnapshotMatrices& snapshots, int64_t slot, int64_t row,
                                     const float4 (&s)[kQuads]) const {
    RowScale scale;
    if (snapshots.dtype == DType::kI8) {
      float largest = 0;
      bool finite = true;
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        for (const float value : {s[i].x, s[i].y, s[i].z, s[i].w}) {
          largest = fmaxf(largest, fabsf(value));
          finite = finite && isfinite(value);
        }
      }
      for (int distance = kLanes / 2; distance > 0; distance /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
        finite = __shfl_xor_sync(0xffffffffu, finite ? 1 : 0, distance) != 0 && finite;
      }
      scale = scale_of(largest, finite);
      if (part == 0) snapshots.scales[slot * snapshots.scale_stride + row] = scale.scale;
    }
    const int64_t number = snapshots.number_of(slot, row);
    if (snapshots.dtype == DType::kF32) {
      auto* to = static_cast<float*>(snapshots.data) + number + part * 4;
      if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
#pragma unroll
        for (int i = 0; i < kQuads; ++i) {
          __stcs(reinterpret_cast<float4*>(to + i * (kLanes * 4)), s[i]);
        }
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int64_t at = number + i * (kLanes * 4) + part * 4;
      store_snapshot_number(snapshots, at, s[i].x, scale);
      store_snapshot_number(snapshots, at + 1, s[i].y, scale);
      store_snapshot_number(snapshots, at + 2, s[i].z, scale);
      store_snapshot_number(snapshots, at + 3, s[i].w, scale);
    }
  }
};

}  // namespace heddle::ops
