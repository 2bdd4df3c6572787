// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/row_tasks.h"
#include "ops/moe/moe_route.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe/moe_route_cpu.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;

// Keeps the A best scores, best first; equal scores stay in the order in which they were added.
class BestExperts {
 public:
  explicit BestExperts(int64_t A) : capacity_(A) {}

  [[nodiscard]] float worst() const { return scores_[capacity_ - 1]; }

  void insert(int32_t id, float score) {
    int64_t place = std::min(size_, capacity_ - 1);
    for (; place > 0 && score > scores_[place - 1]; --place) {
      scores_[place] = scores_[place - 1];
      ids_[place] = ids_[place - 1];
    }
    scores_[place] = score;
    ids_[place] = id;
    size_ = std::min(size_ + 1, capacity_);
  }

  [[nodiscard]] const int32_t* ids() const { return ids_; }

  [[nodiscard]] const float* scores() const { return scores_; }

 private:
  int64_t capacity_;
  int64_t size_ = 0;
  float scores_[kMaxExpertsPerToken];
  int32_t ids_[kMaxExpertsPerToken];
};

// Sum over i < count of exp(logits[i] - shift), added in vectors of partial sums.
float sum_of_exp(const float* logits, int64_t count, float shift) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto offset = hn::Set(d, shift);
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    sum = hn::Add(sum, math::Exp(d, hn::Sub(hn::LoadU(d, logits + i), offset)));
  }
  if (i < count) {
    HWY_ALIGN float tail[HWY_MAX_BYTES / sizeof(float)];
    std::fill_n(tail, lanes, -std::numeric_limits<float>::infinity());
    std::copy_n(logits + i, count - i, tail);
    // If shift is -infinity, -infinity - shift is NaN, and so is the sum.
    sum = hn::Add(sum, math::Exp(d, hn::Sub(hn::Load(d, tail), offset)));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void route_token(const float* logits, int64_t E, int64_t A, bool renormalize, int32_t* experts,
                 float* weights) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  BestExperts best(A);
  for (int64_t e = 0; e < A; ++e) {
    best.insert(static_cast<int32_t>(e), std::isnan(logits[e]) ? kLowest : logits[e]);
  }
  // Skips whole vectors that have no better score (NaN compares false).
  int64_t e = A;
  while (e < E) {
    if (e + lanes <= E &&
        hn::AllFalse(d, hn::Gt(hn::LoadU(d, logits + e), hn::Set(d, best.worst())))) {
      e += lanes;
      continue;
    }
    const int64_t end = std::min(e + lanes, E);
    for (; e < end; ++e) {
      if (logits[e] > best.worst()) best.insert(static_cast<int32_t>(e), logits[e]);
    }
  }

  const float largest = best.scores()[0];
  const float total = sum_of_exp(logits, E, largest);
  HWY_ALIGN float chosen[kMaxExpertsPerToken + HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t a = 0; a < A; ++a) chosen[a] = best.scores()[a] - largest;
  for (int64_t a = 0; a < A; a += lanes) {
    hn::Store(hn::Div(math::Exp(d, hn::Load(d, chosen + a)), hn::Set(d, total)), d, chosen + a);
  }
  float sum = 0.0f;
  for (int64_t a = 0; a < A; ++a) sum += chosen[a];
  for (int64_t a = 0; a < A; ++a) {
    experts[a] = best.ids()[a];
    weights[a] = renormalize ? chosen[a] / sum : chosen[a];
  }
}

// The weight that the sparsemixer gives to choice number `a`.
float near_weight(const float* logits, int64_t E, const int32_t* chosen, int64_t a,
                  float nearness) {
  const float z = logits[chosen[a]];
  float sum = 0;
  for (int64_t e = 0; e < E; ++e) {
    const float l = logits[e];
    // 0 / 0 is NaN, which is not above `nearness`, so the expert counts as close.
    if ((z - l) / std::max(std::abs(l), z) > nearness) continue;
    if (std::find(chosen, chosen + a, e) == chosen + a) sum += std::exp(l - z);
  }
  return 1 / sum;
}

// Computes the score of every expert; `scores` must have room for whole vectors.
void score_experts(const float* logits, int64_t E, RouterScore score, float* scores) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  std::copy_n(logits, E, scores);
  std::fill_n(scores + E, lanes, -std::numeric_limits<float>::infinity());
  if (score == RouterScore::kSparsemixer) return;
  if (score == RouterScore::kSigmoid) {
    for (int64_t e = 0; e < E; e += lanes) {
      hn::StoreU(math::Sigmoid(d, hn::LoadU(d, scores + e)), d, scores + e);
    }
    return;
  }
  float largest = scores[0];
  for (int64_t e = 1; e < E; ++e) largest = std::max(largest, scores[e]);
  auto sum = hn::Zero(d);
  for (int64_t e = 0; e < E; e += lanes) {
    const auto p = math::Exp(d, hn::Sub(hn::LoadU(d, scores + e), hn::Set(d, largest)));
    hn::StoreU(p, d, scores + e);
    sum = hn::Add(sum, p);
  }
  const auto total = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum)));
  for (int64_t e = 0; e < E; e += lanes) {
    hn::StoreU(hn::Div(hn::LoadU(d, scores + e), total), d, scores + e);
  }
}

// Marks the groups that are kept: those with the largest sums of their `group_terms` best ranks.
// Among equal sums the lower index is kept.
void keep_groups(const float* ranks, int64_t E, const RouterScoring& scoring, bool* kept) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const int64_t G = scoring.num_groups;
  const int64_t size = E / G;
  float values[kMaxScoredExperts];
  for (int64_t g = 0; g < G; ++g) {
    float best = kLowest;
    float second = kLowest;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      if (ranks[e] > best) {
        second = best;
        best = ranks[e];
      } else {
        second = std::max(second, ranks[e]);
      }
    }
    values[g] = scoring.group_terms == 2 ? best + second : best;
    kept[g] = false;
  }
  for (int64_t i = 0; i < scoring.groups_kept; ++i) {
    int64_t chosen = -1;
    for (int64_t g = 0; g < G; ++g) {
      if (!kept[g] && (chosen < 0 || values[g] > values[chosen])) chosen = g;
    }
    kept[chosen] = true;
  }
}

// General version: any scoring, at most kMaxScoredExperts experts.
void route_scored_token(const float* logits, int64_t E, int64_t A, const MoeRouteArgs& args,
                        int32_t* experts, float* weights) {
  constexpr auto kRoom = static_cast<size_t>(kMaxScoredExperts) + HWY_MAX_BYTES / sizeof(float);
  HWY_ALIGN float scores[kRoom];
  float ranks[kMaxScoredExperts];
  bool kept[kMaxScoredExperts];
  const RouterScoring& scoring = args.scoring;
  score_experts(logits, E, scoring.score, scores);
  const float* correction = args.correction.as<float>();
  for (int64_t e = 0; e < E; ++e) {
    const float rank = correction == nullptr ? scores[e] : scores[e] + correction[e];
    ranks[e] = std::isnan(rank) ? -std::numeric_limits<float>::infinity() : rank;
  }
  keep_groups(ranks, E, scoring, kept);
  BestExperts best(A);
  const int64_t size = E / scoring.num_groups;
  for (int64_t e = 0, seen = 0; e < E; ++e) {
    if (!kept[e / size]) continue;
    if (seen++ < A || ranks[e] > best.worst()) best.insert(static_cast<int32_t>(e), ranks[e]);
  }
  float sum = scoring.sum_epsilon;
  for (int64_t a = 0; a < A; ++a) sum += scores[best.ids()[a]];
  for (int64_t a = 0; a < A; ++a) {
    experts[a] = best.ids()[a];
    if (scoring.score == RouterScore::kSparsemixer) {
      weights[a] = near_weight(logits, E, best.ids(), a, scoring.nearness) * scoring.scale;
      continue;
    }
    const float weight = scores[best.ids()[a]];
    weights[a] = (args.renormalize ? weight / sum : weight) * scoring.scale;
  }
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(route_token);
HWY_EXPORT(route_scored_token);

namespace {

void scale_by_expert(const MoeRouteArgs& args, int64_t t, int64_t A) {
  const int32_t* experts = args.experts.row<int32_t>(t);
  float* weights = args.weights.row<float>(t);
  for (int64_t a = 0; a < A; ++a) weights[a] *= args.expert_scales.as<float>()[experts[a]];
}

}  // namespace

Status moe_route_cpu(CpuContext& context, const MoeRouteArgs& args) {
  const int64_t T = args.logits.shape[0];
  const int64_t E = args.logits.shape[1];
  const int64_t A = args.experts.shape[1];
  const bool plain = args.scoring == RouterScoring{} && args.correction.data == nullptr;
  constexpr int64_t kCostOfExp = 4;  // an exponential takes as long as this many passes over memory
  for_row_ranges(context.pool, T, kCostOfExp * E, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (plain) {
        HWY_DYNAMIC_DISPATCH(route_token)
        (args.logits.row<float>(t), E, A, args.renormalize, args.experts.row<int32_t>(t),
         args.weights.row<float>(t));
      } else {
        HWY_DYNAMIC_DISPATCH(route_scored_token)
        (args.logits.row<float>(t), E, A, args, args.experts.row<int32_t>(t),
         args.weights.row<float>(t));
      }
      if (args.expert_scales.data != nullptr) scale_by_expert(args, t, A);
    }
  });
  return ok_status();
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
