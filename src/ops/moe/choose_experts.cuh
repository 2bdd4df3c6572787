// SPDX-License-Identifier: Apache-2.0
// Chooses the A largest of a token's E router scores, equal ones by lower id, and computes their
// softmax weights. A warp processes a token. A lane holds E / 32 scores as ordered integers in
// registers (HeldRanks), or none (kPerLane 0); then every choice searches the logits again. Cost: A
// rounds of a maximum over the lane's scores and two warp reductions; 4 * E bytes. Used by
// moe_route_cuda.cu for softmax scores, and by few_experts.cu, which routes in its first product.
#pragma once

#include <climits>
#include <cmath>

#include "ops/cuda/reduce.cuh"
#include "ops/moe/moe_route.h"

namespace heddle::ops {

inline constexpr float kLowest = -INFINITY;

// A score and the id that it belongs to. Ordered by descending score, then by ascending id: no two
// are equal, so that the next best after a given one can be found without marking those already
// chosen.
struct Ranked {
  float score;
  int id;

  __device__ bool before(const Ranked& other) const {
    return score > other.score || (score == other.score && id < other.id);
  }
};

__device__ inline float number_or_lowest(float score) { return isnan(score) ? kLowest : score; }

// Every lane gets the first of score(0) to score(count - 1) in that order that comes after `taken`.
// NaN scores are skipped.
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

// Maps floats to unsigned integers in the same order; both zeros are equal.
__device__ inline unsigned rank_of(float score) {
  const unsigned bits = __float_as_uint(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The inverse of rank_of().
__device__ inline float score_of(unsigned rank) {
  return __uint_as_float((rank & 0x80000000u) != 0 ? rank & 0x7fffffffu : ~rank);
}

// The ranks of a token's experts in the registers of a warp: lane l has experts l + 32 * i.
template <int kPerLane>
struct HeldRanks {
  // 0, which is below the rank of -infinity: chosen already, or no such expert.
  unsigned ranks[kPerLane];

  __device__ void load(const float* logits, int E, int lane) {
    float own[kPerLane];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = lane + i * kWarp;
      own[i] = e < E ? logits[e] : kLowest;
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      ranks[i] = lane + i * kWarp < E ? rank_of(number_or_lowest(own[i])) : 0;
    }
  }

  // Removes the best remaining expert, the lowest id among equals, and returns it to every lane.
  // The comparisons of a lane's ranks do not depend on each other.
  __device__ Ranked take_best(int lane) {
    const unsigned top = __reduce_max_sync(0xffffffffu, highest<0, kPerLane>());
    unsigned places = 0;  // bit i: ranks[i] is the best
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) places |= (ranks[i] == top ? 1u : 0u) << i;
    const int own = places == 0 ? INT_MAX : lane + (__ffs(static_cast<int>(places)) - 1) * kWarp;
    const int id = __reduce_min_sync(0xffffffffu, own);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (id == lane + i * kWarp) ranks[i] = 0;
    }
    return {score_of(top), id};
  }

 private:
  // The largest of kCount ranks from kFirst on, found by repeatedly comparing halves.
  template <int kFirst, int kCount>
  [[nodiscard]] __device__ unsigned highest() const {
    if constexpr (kCount == 1) {
      return ranks[kFirst];
    } else {
      constexpr int kHalf = kCount / 2;
      return max(highest<kFirst, kHalf>(), highest<kFirst + kHalf, kCount - kHalf>());
    }
  }
};

// The experts of a token, best first, in shared memory.
struct ChosenExperts {
  int32_t ids[kMaxExpertsPerToken];
  float weights[kMaxExpertsPerToken];  // the chosen scores, later replaced by the weights
};

// Chooses a token's experts by descending score, some at a time. A whole warp calls it; the warp
// holds at most 32 * kPerLane experts in registers.
template <int kPerLane>
class ExpertChoice {
 public:
  __device__ void begin(const float* logits, int E) {
    ranks_.load(logits, E, lane());
    num_chosen_ = 0;
  }

  // Other warps may read the experts before `count` after a barrier.
  __device__ void choose_until(int count, ChosenExperts& chosen) {
    for (; num_chosen_ < count; ++num_chosen_) {
      const Ranked best = ranks_.take_best(lane());
      if (lane() != 0) continue;
      chosen.ids[num_chosen_] = best.id;
      chosen.weights[num_chosen_] = best.score;
    }
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

  HeldRanks<kPerLane> ranks_;
  int num_chosen_;
};

// A whole warp calls it: chooses A of E experts by descending score. Each lane holds kPerLane
// experts in registers; with 0 every choice searches through the logits. Other warps may read
// `chosen` after a barrier.
template <int kPerLane>
__device__ inline void choose_experts(const float* logits, int E, int A, ChosenExperts& chosen) {
  if constexpr (kPerLane > 0) {
    ExpertChoice<kPerLane> choice;
    choice.begin(logits, E);
    choice.choose_until(A, chosen);
  } else {
    Ranked best{INFINITY, -1};
    for (int a = 0; a < A; ++a) {
      best = next_best(E, best, [&](int e) { return number_or_lowest(logits[e]); });
      if (threadIdx.x % kWarp != 0) continue;
      chosen.ids[a] = best.id;
      chosen.weights[a] = best.score;
    }
  }
}

// Called by the same warp: turns scores into weights, by the softmax over all E experts or, with
// `renormalize`, over the chosen ones.
__device__ inline void weigh_experts(const float* logits, int E, int A, bool renormalize,
                                     ChosenExperts& chosen) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  __syncwarp();
  const float largest = chosen.weights[0];
  float total = 0;
#pragma unroll 4
  for (int e = lane; e < E; e += kWarp) total += expf(logits[e] - largest);
  total = warp_sum(total);
  __syncwarp();
  for (int a = lane; a < A; a += kWarp) {
    chosen.weights[a] = expf(chosen.weights[a] - largest) / total;
  }
  __syncwarp();
  if (!renormalize) return;
  float sum = 0;
  for (int a = 0; a < A; ++a) sum += chosen.weights[a];
  __syncwarp();
  for (int a = lane; a < A; a += kWarp) chosen.weights[a] /= sum;
}

}  // namespace heddle::ops
