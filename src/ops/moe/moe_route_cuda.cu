// SPDX-License-Identifier: Apache-2.0
// experts[t] = the A best of E router scores. weights[t] = their softmax or sigmoid, possibly
// renormalised, or the weights of the sparsemixer. A block is one warp, which routes a token; a
// lane has every 32nd expert. Bytes: 4 * E a token; latency-bound: A rounds that depend on each
// other. route_kernel is for plain softmax scores (in registers up to 512 experts, searched
// beyond); scored_route_kernel for sigmoid scores, corrections, groups and the sparsemixer (in
// registers).
#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/moe/choose_experts.cuh"
#include "ops/moe/moe_route.h"

namespace heddle::ops {

namespace {

struct Params {
  const float* logits;
  const float* correction;       // correction of the ranks; null: none
  const float* expert_scales;    // factors of the experts' weights; null: none
  const int32_t* row_sequences;  // sequence of each row; null: no row is padding
  int32_t* experts;
  float* weights;
  int64_t logits_stride, experts_stride, weights_stride;
  int64_t T;
  int E, A;
  bool renormalize;
  RouterScore score;
  int num_groups, groups_kept, group_terms;
  float scale;
  float sum_epsilon;
  float nearness;
};

// Router logits of token t.
const __device__ inline float* logits_of(const Params& p, int64_t t) {
  const bool is_padding = p.row_sequences != nullptr && p.row_sequences[t] < 0;
  return p.logits + (is_padding ? 0 : t * p.logits_stride);
}

__device__ inline float scale_of(const Params& p, int expert) {
  return p.expert_scales == nullptr ? 1.0f : p.expert_scales[expert];
}

// A warp routes a token.
template <int kPerLane>
__global__ void __launch_bounds__(kWarp) route_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ ChosenExperts chosen;
  const int lane = static_cast<int>(threadIdx.x);
  for (int64_t t = blockIdx.x; t < p.T; t += gridDim.x) {
    const float* logits = logits_of(p, t);
    choose_experts<kPerLane>(logits, p.E, p.A, chosen);
    weigh_experts(logits, p.E, p.A, p.renormalize, chosen);
    __syncwarp();
    for (int a = lane; a < p.A; a += kWarp) {
      p.experts[t * p.experts_stride + a] = chosen.ids[a];
      p.weights[t * p.weights_stride + a] = chosen.weights[a] * scale_of(p, chosen.ids[a]);
    }
    __syncwarp();  // waits before the next token's experts are written
  }
}

// A lane's share of a token's experts, at most kMost: their scores, and the ranks by which experts
// are chosen. For a softmax a lane sums its experts in ascending order.
template <int kMost>
struct OwnScores {
  float corrections[kMost];
  float scores[kMost], ranks[kMost];

  __device__ void load_corrections(const Params& p, int lane) {
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int e = lane + i * kWarp;
      corrections[i] = p.correction != nullptr && e < p.E ? p.correction[e] : 0.0f;
    }
  }

  __device__ void score(const Params& p, const float* logits, int lane) {
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int e = lane + i * kWarp;
      scores[i] = e < p.E ? logits[e] : kLowest;
    }
    if (p.score == RouterScore::kSigmoid) {
#pragma unroll
      for (int i = 0; i < kMost; ++i) scores[i] = 1.0f / (1.0f + expf(-scores[i]));
    } else if (p.score == RouterScore::kSoftmax) {
      float largest = kLowest;
#pragma unroll
      for (int i = 0; i < kMost; ++i) largest = fmaxf(largest, scores[i]);
      largest = warp_max(largest);
      float total = 0;
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        if (lane + i * kWarp >= p.E) break;
        scores[i] = expf(scores[i] - largest);
        total += scores[i];
      }
      total = warp_sum(total);
#pragma unroll
      for (int i = 0; i < kMost; ++i) scores[i] /= total;
    }
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      ranks[i] = number_or_lowest(p.correction == nullptr ? scores[i] : scores[i] + corrections[i]);
    }
  }
};

// The weight that the sparsemixer gives to choice number `a`.
__device__ inline float near_weight(const Params& p, const float* logits, const int32_t* chosen,
                                    int a) {
  const float z = logits[chosen[a]];
  float sum = 0;
  for (int e = 0; e < p.E; ++e) {
    // 0 / 0 is NaN, which is not above p.nearness, so the expert counts as close.
    bool is_left = !((z - logits[e]) / fmaxf(fabsf(logits[e]), z) > p.nearness);
    for (int i = 0; i < a; ++i) is_left &= chosen[i] != e;
    if (is_left) sum += expf(logits[e] - z);
  }
  return 1.0f / sum;
}

// Supports every kind of scoring, with at most 32 * kPerLane experts. A warp routes one token, with
// its scores in shared memory and its ranks in registers, as in route_kernel.
template <int kPerLane>
__global__ void __launch_bounds__(kWarp) scored_route_kernel(const __grid_constant__ Params p) {
  constexpr int kMost = kPerLane * kWarp;
  __shared__ float scores[kMost];
  __shared__ float ranks[kMost];  // ranks of the experts; used only to choose groups
  __shared__ float groups[kMost];
  __shared__ bool kept[kMost];  // whether each group is kept
  __shared__ float chosen[kMaxExpertsPerToken];
  const int lane = threadIdx.x;
  const int group_size = p.E / p.num_groups;
  const bool all_groups = p.groups_kept == p.num_groups;
  OwnScores<kPerLane> own;
  own.load_corrections(p, lane);
  wait_for_inputs();
  for (int64_t t = blockIdx.x; t < p.T; t += gridDim.x) {
    own.score(p, logits_of(p, t), lane);
    __syncwarp();  // all lanes are done with the previous token
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = lane + i * kWarp;
      if (e >= p.E) break;
      scores[e] = own.scores[i];
      if (!all_groups) ranks[e] = own.ranks[i];
    }
    __syncwarp();
    if (!all_groups) {
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
        kept[g] = false;
      }
      __syncwarp();
      Ranked group{INFINITY, -1};
      for (int i = 0; i < p.groups_kept; ++i) {
        group = next_best(p.num_groups, group, [&](int g) { return groups[g]; });
        if (lane == 0) kept[group.id] = true;
      }
      __syncwarp();
    }
    HeldRanks<kPerLane> held;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int e = lane + i * kWarp;
      const bool eligible = e < p.E && (all_groups || kept[e / group_size]);
      held.ranks[i] = eligible ? rank_of(own.ranks[i]) : 0;
    }
    float sum = p.sum_epsilon;
    for (int a = 0; a < p.A; ++a) {
      const int best = held.take_best(lane).id;
      sum += scores[best];
      if (lane == 0) {
        p.experts[t * p.experts_stride + a] = best;
        chosen[a] = scores[best];
      }
    }
    __syncwarp();
    for (int a = lane; a < p.A; a += kWarp) {
      if (p.score == RouterScore::kSparsemixer) {
        p.weights[t * p.weights_stride + a] =
            near_weight(p, scores, p.experts + t * p.experts_stride, a) * p.scale *
            scale_of(p, p.experts[t * p.experts_stride + a]);
        continue;
      }
      const float weight = chosen[a];
      p.weights[t * p.weights_stride + a] = (p.renormalize ? weight / sum : weight) * p.scale *
                                            scale_of(p, p.experts[t * p.experts_stride + a]);
    }
  }
}

}  // namespace

Status moe_route_cuda(CudaContext& context, const MoeRouteArgs& args) {
  const RouterScoring& scoring = args.scoring;
  const Params params{.logits = args.logits.as<float>(),
                      .correction = args.correction.as<float>(),
                      .expert_scales = args.expert_scales.as<float>(),
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
                      .score = scoring.score,
                      .num_groups = static_cast<int>(scoring.num_groups),
                      .groups_kept = static_cast<int>(scoring.groups_kept),
                      .group_terms = static_cast<int>(scoring.group_terms),
                      .scale = scoring.scale,
                      .sum_epsilon = scoring.sum_epsilon,
                      .nearness = scoring.nearness};
  const auto run = [&](auto kernel) {
    return launch(context, "moe_route", kernel, grid_of(params.T), kWarp, params);
  };
  if (scoring != RouterScoring{} || args.correction.data != nullptr) {
    static_assert(kMaxScoredExperts == 32 * kWarp);
    if (params.E <= 4 * kWarp) return run(scored_route_kernel<4>);
    return params.E <= 16 * kWarp ? run(scored_route_kernel<16>) : run(scored_route_kernel<32>);
  }
  if (params.E <= 4 * kWarp) return run(route_kernel<4>);
  if (params.E <= 16 * kWarp) return run(route_kernel<16>);
  return run(route_kernel<0>);
}

}  // namespace heddle::ops
