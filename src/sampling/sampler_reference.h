// SPDX-License-Identifier: Apache-2.0
// Reference sampler in double precision that sorts everything: the expected results of the tests,
// and the simplest form of the order of operations in sampler.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include <heddle/request.h>

namespace heddle::sampling {

struct ReferenceDistribution {
  std::vector<double> logits;         // logits after step 4 of sampler.h
  std::vector<double> probabilities;  // probabilities after step 6 of sampler.h
  std::vector<double> kept;           // renormalised after step 7 of sampler.h; 0: dropped
  TokenId best = 0;

  // The smallest change of a probability that changes a decision of top_p or min_p. Tests skip
  // draws that rounding may decide.
  double margin = 1;
};

inline ReferenceDistribution reference_distribution(std::span<const float> row,
                                                    const SamplingParams& params,
                                                    std::span<const TokenId> output,
                                                    std::span<const TokenId> forbidden) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ReferenceDistribution result;
  std::vector<double>& x = result.logits;
  x.assign(row.begin(), row.end());

  for (const TokenId token : forbidden) x[static_cast<size_t>(token)] = -kInfinity;
  for (const auto& [token, bias] : params.logit_bias) x[static_cast<size_t>(token)] += bias;
  std::map<TokenId, int> counts;
  for (const TokenId token : output) ++counts[token];
  for (const auto& [token, count] : counts) {
    double& logit = x[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= static_cast<double>(params.frequency_penalty) * count + params.presence_penalty;
  }

  const size_t V = x.size();
  std::vector<size_t> order(V);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  result.best = static_cast<TokenId>(order[0]);

  const double temperature = params.temperature < 1e-6f ? 1.0 : params.temperature;
  result.probabilities.resize(V);
  double total = 0;
  for (size_t i = 0; i < V; ++i) {
    result.probabilities[i] = std::exp((x[i] - x[order[0]]) / temperature);
    total += result.probabilities[i];
  }
  for (double& p : result.probabilities) p /= total;

  result.kept.assign(V, 0.0);
  const double best = result.probabilities[order[0]];
  double mass_before = 0;
  double kept_mass = 0;
  for (size_t rank = 0; rank < V; ++rank) {
    const double p = result.probabilities[order[rank]];
    if (params.top_k >= 1 && rank >= static_cast<size_t>(params.top_k)) break;
    if (params.top_p < 1) {
      result.margin = std::min(result.margin, std::abs(mass_before - params.top_p));
      if (mass_before > params.top_p) break;
    }
    if (params.min_p > 0) {
      result.margin = std::min(result.margin, std::abs(p / best / params.min_p - 1));
      if (p < params.min_p * best) break;
    }
    result.kept[order[rank]] = p;
    kept_mass += p;
    mass_before += p;
  }
  for (double& p : result.kept) p /= kept_mass;
  return result;
}

// Step 8 of sampler.h. Sets `margin` to the distance of the draw from another token.
inline TokenId reference_draw(const ReferenceDistribution& distribution, double uniform,
                              double& margin) {
  double mass = 0;
  TokenId drawn = 0;
  margin = 1;
  for (size_t i = 0; i < distribution.kept.size(); ++i) {
    if (distribution.kept[i] <= 0) continue;
    drawn = static_cast<TokenId>(i);
    mass += distribution.kept[i];
    margin = std::min(margin, std::abs(mass - uniform));
    if (mass > uniform) break;
  }
  return drawn;
}

}  // namespace heddle::sampling
