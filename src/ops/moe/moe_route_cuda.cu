// SPDX-License-Identifier: Apache-2.0
#include <climits>
#include <cmath>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/moe/moe_route.h"

namespace heddle::ops {

namespace {

struct Params {
  const float* logits;
  const float* correction;       // null: none
  const int32_t* row_sequences;  // null: no row is padding
  int32_t* experts;
  float* weights;
  int64_t logits_stride, experts_stride, weights_stride;
  int64_t T;
  int E, A;
  bool renormalize;
  bool sigmoid;
  int num_groups, groups_kept, group_terms;
  float scale;
};

// Those that token t goes by.
const __device__ inline float* logits_of(const Params& p, int64_t t) {
  const bool is_padding = p.row_sequences != nullptr && p.row_sequences[t] < 0;
  return p.logits + (is_padding ? 0 : t * p.logits_stride);
}

constexpr float kLowest = -INFINITY;

// A score and what has it. Ordered by falling score, then by rising id: no two are equal, so that
// the next best after a given one is found without marks on those that were taken.
struct Ranked {
  float score;
  int id;

  __device__ bool before(const Ranked& other) const {
    return score > other.score || (score == other.score && id < other.id);
  }
};

__device__ float number_or_lowest(float score) { return isnan(score) ? kLowest : score; }

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

// A warp routes a token. It holds the scores in registers; with kPerLane 0 it searches the logits
// anew for every choice. A choice of 512 experts takes some 60 instructions.
template <int kPerLane>
__global__ void __launch_bounds__(kWarp) route_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ float chosen[kMaxExpertsPerToken];
  const int lane = threadIdx.x;
  for (int64_t t = blockIdx.x; t < p.T; t += gridDim.x) {
    const float* logits = logits_of(p, t);
    float largest = 0;
    const auto choose = [&](int a, const Ranked& best) {
      if (a == 0) largest = best.score;
      if (lane == 0) {
        p.experts[t * p.experts_stride + a] = best.id;
        chosen[a] = expf(best.score - largest);
      }
    };
    float total = 0;
    if constexpr (kPerLane > 0) {
      HeldScores<kPerLane> scores(logits, p.E, lane);
      for (int a = 0; a < p.A; ++a) choose(a, scores.take_best(lane));
      total = scores.sum_of_weights(largest);
    } else {
      Ranked best{INFINITY, -1};
      for (int a = 0; a < p.A; ++a) {
        best = next_best(p.E, best, [&](int e) { return number_or_lowest(logits[e]); });
        choose(a, best);
      }
#pragma unroll 4
      for (int e = lane; e < p.E; e += kWarp) total += expf(logits[e] - largest);
    }
    total = warp_sum(total);
    __syncwarp();
    float sum = 0;
    for (int a = 0; a < p.A; ++a) sum += chosen[a] / total;
    for (int a = lane; a < p.A; a += kWarp) {
      const float weight = chosen[a] / total;
      p.weights[t * p.weights_stride + a] = p.renormalize ? weight / sum : weight;
    }
    __syncwarp();  // before the next token's are written
  }
}

// Any scoring, at most kMaxScoredExperts experts; a warp routes a token as above, with its scores
// and ranks in shared memory.
__global__ void __launch_bounds__(kWarp) scored_route_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ float scores[kMaxScoredExperts];
  __shared__ float ranks[kMaxScoredExperts];
  __shared__ float groups[kMaxScoredExperts];
  __shared__ bool kept[kMaxScoredExperts];  // of the groups
  __shared__ float chosen[kMaxExpertsPerToken];
  const int lane = threadIdx.x;
  const int group_size = p.E / p.num_groups;
  for (int64_t t = blockIdx.x; t < p.T; t += gridDim.x) {
    const float* logits = logits_of(p, t);
    __syncwarp();  // the token before is done
    if (p.sigmoid) {
      for (int e = lane; e < p.E; e += kWarp) scores[e] = 1.0f / (1.0f + expf(-logits[e]));
    } else {
      float largest = kLowest;
      for (int e = lane; e < p.E; e += kWarp) largest = fmaxf(largest, logits[e]);
      largest = warp_max(largest);
      float total = 0;
      for (int e = lane; e < p.E; e += kWarp) {
        scores[e] = expf(logits[e] - largest);
        total += scores[e];
      }
      total = warp_sum(total);
      for (int e = lane; e < p.E; e += kWarp) scores[e] /= total;
    }
    for (int e = lane; e < p.E; e += kWarp) {
      const float rank = p.correction == nullptr ? scores[e] : scores[e] + p.correction[e];
      ranks[e] = number_or_lowest(rank);
    }
    __syncwarp();
    for (int g = lane; g < p.num_groups; g += kWarp) {
      float best = kLowest;
      float second = kLowest;
      for (int e = g * group_size; e < (g + 1) * group_size; ++e) {
        if (ranks[e] > best) {
          second = best;
          best = ranks[e];
        } else {
          second = fmaxf(second, ranks[e]);
        }
      }
      groups[g] = number_or_lowest(p.group_terms == 2 ? best + second : best);
      kept[g] = p.groups_kept == p.num_groups;
    }
    __syncwarp();
    Ranked group{INFINITY, -1};
    for (int i = 0; i < p.groups_kept && p.groups_kept < p.num_groups; ++i) {
      group = next_best(p.num_groups, group, [&](int g) { return groups[g]; });
      if (lane == 0) kept[group.id] = true;
    }
    __syncwarp();

    Ranked best{INFINITY, -1};
    float sum = 1e-20f;  // the families' own guard against dividing by zero
    for (int a = 0; a < p.A; ++a) {
      best = next_best(p.E, best, [&](int e) { return kept[e / group_size] ? ranks[e] : NAN; });
      sum += scores[best.id];
      if (lane == 0) {
        p.experts[t * p.experts_stride + a] = best.id;
        chosen[a] = scores[best.id];
      }
    }
    __syncwarp();
    for (int a = lane; a < p.A; a += kWarp) {
      const float weight = chosen[a];
      p.weights[t * p.weights_stride + a] = (p.renormalize ? weight / sum : weight) * p.scale;
    }
  }
}

}  // namespace

Status moe_route_cuda(CudaContext& context, const MoeRouteArgs& args) {
  const RouterScoring& scoring = args.scoring;
  const Params params{.logits = args.logits.as<float>(),
                      .correction = args.correction.as<float>(),
                      .row_sequences = args.row_sequences,
                      .experts = args.experts.as<int32_t>(),
                      .weights = args.weights.as<float>(),
                      .logits_stride = args.logits.row_stride,
                      .experts_stride = args.experts.row_stride,
                      .weights_stride = args.weights.row_stride,
                      .T = args.logits.shape[0],
                      .E = static_cast<int>(args.logits.shape[1]),
                      .A = static_cast<int>(args.experts.shape[1]),
                      .renormalize = args.renormalize,
                      .sigmoid = scoring.score == RouterScore::kSigmoid,
                      .num_groups = static_cast<int>(scoring.num_groups),
                      .groups_kept = static_cast<int>(scoring.groups_kept),
                      .group_terms = static_cast<int>(scoring.group_terms),
                      .scale = scoring.scale};
  const auto run = [&](auto kernel) {
    return launch(context, "moe_route", kernel, grid_of(params.T), kWarp, params);
  };
  if (scoring != RouterScoring{} || args.correction.data != nullptr)
    return run(scored_route_kernel);
  if (params.E <= 4 * kWarp) return run(route_kernel<4>);
  if (params.E <= 16 * kWarp) return run(route_kernel<16>);
  return run(route_kernel<0>);
}

}  // namespace heddle::ops
