// SPDX-License-Identifier: Apache-2.0
// A token's experts by the softmax of its scores, found by one warp: for the op that routes and for
// kernels of few tokens that route on their way.
#pragma once

#include <climits>
#include <cmath>

#include "ops/cuda/reduce.cuh"
#include "ops/moe/moe_route.h"

namespace heddle::ops {

inline constexpr float kLowest = -INFINITY;

// A score and what has it. Ordered by falling score, then by rising id: no two are equal, so that
// the next best after a given one is found without marks on those that were taken.
struct Ranked {
  float score;
  int id;

  __device__ bool before(const Ranked& other) const {
    return score > other.score || (score == other.score && id < other.id);
  }
};

__device__ inline float number_or_lowest(float score) { return isnan(score) ? kLowest : score; }

// The first of score(0) .. score(count - 1) that comes after `taken`, for every lane of the warp. A
// score that returns NaN is passed over.
template <typename Score>
__device__ Ranked next_best(int count, const Ranked& taken, const Score& score) {
  Ranked best{kLowest, INT_MAX};
#pragma unroll 8
  for (int id = threadIdx.x % kWarp; id < count; id += kWarp) {
    const Ranked candidate{score(id), id};
    if (taken.before(candidate) && candidate.before(best)) best = candidate;
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Ranked other{__shfl_xor_sync(0xffffffffu, best.score, distance),
                       __shfl_xor_sync(0xffffffffu, best.id, distance)};
    if (other.before(best)) best = other;
  }
  return best;
}

// Floats in their order as unsigned numbers; both zeros are the same.
__device__ inline unsigned rank_of(float score) {
  const unsigned bits = __float_as_uint(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The score that rank_of() made a rank of.
__device__ inline float score_of(unsigned rank) {
  return __uint_as_float((rank & 0x80000000u) != 0 ? rank & 0x7fffffffu : ~rank);
}

// The scores of a token's experts in the registers of a warp: lane l has experts l + 32 * i.
template <int kPerLane>
struct HeldScores {
  float logits[kPerLane];
  unsigned ranks[kPerLane];
  unsigned left = 0;  // bit i: ranks[i] is of an expert that was not taken yet

  __device__ HeldScores(const float* from, int E, int lane) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = lane + i * kWarp;
      logits[i] = kLowest;
      if (e < E) logits[i] = from[e];
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      ranks[i] = rank_of(number_or_lowest(logits[i]));
      if (lane + i * kWarp < E) left |= 1u << i;
    }
  }

  // The best that is left, the lowest id among equals, for every lane.
  __device__ Ranked take_best(int lane) {
    unsigned best = 0;  // below the rank of -infinity
    int place = -1;
#pragma unroll
    for (int i = kPerLane - 1; i >= 0; --i) {
      if ((left >> i & 1) != 0 && ranks[i] >= best) {
        best = ranks[i];
        place = i;
      }
    }
    const unsigned top = __reduce_max_sync(0xffffffffu, best);
    const bool mine = place >= 0 && best == top;
    const int id = __reduce_min_sync(0xffffffffu, mine ? lane + place * kWarp : INT_MAX);
    if (id % kWarp == lane) left &= ~(1u << id / kWarp);
    return {score_of(top), id};
  }

  // The lane's share of the sum of exp(logit - largest).
  [[nodiscard]] __device__ float sum_of_weights(float largest) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sum += expf(logits[i] - largest);
    return sum;
  }
};

// The experts and weights of a token, in shared memory.
struct ChosenExperts {
  int32_t ids[kMaxExpertsPerToken];
  float weights[kMaxExpertsPerToken];
};

// Called by a whole warp: A of E experts by falling score. It holds the scores of at most
// 32 * kPerLane experts in registers, where a choice of 512 takes some 60 instructions; with 0 it
// searches the logits anew for every choice. Others see `chosen` after a barrier.
template <int kPerLane>
__device__ inline void choose_experts(const float* logits, int E, int A, bool renormalize,
                                      ChosenExperts& chosen) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float largest = 0;
  const auto choose = [&](int a, const Ranked& best) {
    if (a == 0) largest = best.score;
    if (lane == 0) {
      chosen.ids[a] = best.id;
      chosen.weights[a] = expf(best.score - largest);
    }
  };
  float total = 0;
  if constexpr (kPerLane > 0) {
    HeldScores<kPerLane> scores(logits, E, lane);
    for (int a = 0; a < A; ++a) choose(a, scores.take_best(lane));
    total = scores.sum_of_weights(largest);
  } else {
    Ranked best{INFINITY, -1};
    for (int a = 0; a < A; ++a) {
      best = next_best(E, best, [&](int e) { return number_or_lowest(logits[e]); });
      choose(a, best);
    }
#pragma unroll 4
    for (int e = lane; e < E; e += kWarp) total += expf(logits[e] - largest);
  }
  total = warp_sum(total);
  __syncwarp();
  float sum = 0;
  for (int a = 0; a < A; ++a) sum += chosen.weights[a] / total;
  __syncwarp();
  for (int a = lane; a < A; a += kWarp) {
    const float weight = chosen.weights[a] / total;
    chosen.weights[a] = renormalize ? weight / sum : weight;
  }
}

}  // namespace heddle::ops
