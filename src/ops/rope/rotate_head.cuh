// SPDX-License-Identifier: Apache-2.0
// rotate_head(): a warp normalises and rotates one head of a row (rope.h). form_angles(): all
// threads of the block compute the sines and cosines of the row in shared memory. A lane has every
// 32nd pair and every 32nd channel that is not rotated; sums are in lane order, then warp_sum().
// Bytes: D elements are read, twice with a norm. Used by rope_cuda.cu and
// attention/rotate_append_cuda.cu.
#pragma once

#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/rope/rope.h"

namespace heddle::ops {

// The parameters that all heads share.
struct Rotation {
  const float* norm_weight;  // weight of the norm [D]; null: no norm
  int64_t D;
  int64_t first, half;  // first rotated channel and number of rotated pairs
  bool interleaved;
  float epsilon;

  static Rotation of(const RopeArgs& args) {
    return {.norm_weight = args.norm_weight.as<float>(),
            .D = args.head_dim,
            .first = args.first_channel,
            .half = args.num_pairs(),
            .interleaved = args.interleaved,
            .epsilon = args.epsilon};
  }
};

// The tables of inverse frequencies by which rows are rotated.
struct Frequencies {
  const float* inverse;  // [half] or, with has_long, [2, half]
  bool has_long;
  float factor;

  static Frequencies of(const RopeArgs& args) {
    return {.inverse = args.inverse_frequencies.as<float>(),
            .has_long = args.inverse_frequencies.shape.rank() == 2,
            .factor = args.factor};
  }
};

// Computes the sines and cosines of a row, by all threads of the block.
__device__ inline void form_angles(const Frequencies& frequencies, int64_t half, int32_t position,
                                   float* cosines, float* sines) {
  const bool is_long = frequencies.has_long && (position & kLongRope) != 0;
  const float* const inverse = frequencies.inverse + (is_long ? half : 0);
  const auto turned = static_cast<float>(position & ~kLongRope);
  for (int64_t i = threadIdx.x; i < half; i += blockDim.x) {
    float sine, cosine;
    sincosf(inverse[i] * turned, &sine, &cosine);
    cosines[i] = cosine * frequencies.factor;
    sines[i] = sine * frequencies.factor;
  }
}

// Calls store(channel, value) for every channel of head `x`. A lane has every 32nd pair and every
// 32nd channel that is not rotated, and reads them before it stores them, so that the target may be
// x. The sum of the norm runs over ascending channels in each lane and is joined by warp_sum().
template <typename Scalar, typename Store>
__device__ inline void rotate_head(const Rotation& r, const Scalar* x, const float* cosines,
                                   const float* sines, const Store& store) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float scale = 1.0f;
  if (r.norm_weight != nullptr) {
    float sum = 0;
    for (int64_t d = lane; d < r.D; d += kWarp) {
      const float value = as_float(x[d]);
      sum += value * value;
    }
    scale = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(r.D) + r.epsilon);
  }
  const auto channel = [&](int64_t d) {
    const float value = as_float(x[d]);
    return r.norm_weight != nullptr ? value * scale * r.norm_weight[d] : value;
  };
  for (int64_t i = lane; i < r.half; i += kWarp) {
    const int64_t a = r.first + (r.interleaved ? 2 * i : i);
    const int64_t b = r.interleaved ? a + 1 : a + r.half;
    const float at_a = channel(a);
    const float at_b = channel(b);
    store(a, at_a * cosines[i] - at_b * sines[i]);
    store(b, at_b * cosines[i] + at_a * sines[i]);
  }
  for (int64_t d = lane; d < r.D - 2 * r.half; d += kWarp) {
    const int64_t passed = d < r.first ? d : d + 2 * r.half;
    store(passed, channel(passed));
  }
}

}  // namespace heddle::ops
