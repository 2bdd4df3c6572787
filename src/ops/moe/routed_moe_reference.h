// SPDX-License-Identifier: Apache-2.0
// Reference for tests: moe_route and routed_moe in plain loops and double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>
#include <vector>

#include "ops/gemm/linear_reference.h"
#include "ops/moe/routed_moe.h"

namespace heddle::ops {

struct RouteReference {
  std::vector<int64_t> experts;  // [A], best first
  std::vector<double> weights;   // [A]
};

inline RouteReference moe_route_reference(const TensorView& logits, int64_t t, int64_t A,
                                          bool renormalize) {
  const int64_t E = logits.shape[1];
  std::vector<double> p;
  for (int64_t e = 0; e < E; ++e) p.push_back(element_of(logits, t, e));
  std::vector<int64_t> order(static_cast<size_t>(E));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return p[static_cast<size_t>(a)] > p[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(A));
  const double largest = *std::max_element(p.begin(), p.end());
  double total = 0;
  for (double& value : p) total += value = std::exp(value - largest);
  RouteReference route{.experts = order, .weights = {}};
  double chosen = 0;
  for (const int64_t e : order) chosen += p[static_cast<size_t>(e)];
  for (const int64_t e : order) {
    route.weights.push_back(p[static_cast<size_t>(e)] / (renormalize ? chosen : total));
  }
  return route;
}

// The choice for token t with all options of `args.scoring`: A experts, best first.
inline RouteReference scored_route_reference(const MoeRouteArgs& args, int64_t t, int64_t A) {
  const int64_t E = args.logits.shape[1];
  const RouterScoring& scoring = args.scoring;
  const auto size = static_cast<size_t>(E / scoring.num_groups);
  std::vector<double> p;
  for (int64_t e = 0; e < E; ++e) p.push_back(element_of(args.logits, t, e));
  const bool mixes = scoring.score == RouterScore::kSparsemixer;
  if (scoring.score == RouterScore::kSigmoid) {
    for (double& value : p) value = 1.0 / (1.0 + std::exp(-value));
  } else if (mixes) {  // experts are ranked by the logits themselves
  } else {
    const double largest = *std::max_element(p.begin(), p.end());
    double total = 0;
    for (double& value : p) total += value = std::exp(value - largest);
    for (double& value : p) value /= total;
  }
  std::vector<double> ranks = p;
  for (size_t e = 0; e < ranks.size() && args.correction.data != nullptr; ++e) {
    ranks[e] += static_cast<double>(args.correction.as<float>()[e]);
  }
  const auto best_first = [](const std::vector<double>& values) {
    std::vector<int64_t> order(values.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
    });
    return order;
  };
  std::vector<double> groups;
  for (size_t first = 0; first < ranks.size(); first += size) {
    std::vector<double> sorted(ranks.begin() + static_cast<int64_t>(first),
                               ranks.begin() + static_cast<int64_t>(first + size));
    std::sort(sorted.rbegin(), sorted.rend());
    groups.push_back(std::accumulate(sorted.begin(), sorted.begin() + scoring.group_terms, 0.0));
  }
  std::vector<int64_t> kept = best_first(groups);
  kept.resize(static_cast<size_t>(scoring.groups_kept));
  RouteReference route;
  double sum = static_cast<double>(scoring.sum_epsilon);
  for (const int64_t e : best_first(ranks)) {
    const auto group = static_cast<int64_t>(static_cast<size_t>(e) / size);
    if (std::find(kept.begin(), kept.end(), group) == kept.end()) continue;
    route.experts.push_back(e);
    sum += p[static_cast<size_t>(e)];
    if (route.experts.size() == static_cast<size_t>(A)) break;
  }
  std::set<int64_t> taken;
  for (const int64_t e : route.experts) {
    if (mixes) {
      const double z = p[static_cast<size_t>(e)];
      double near = 0;
      for (int64_t other = 0; other < E; ++other) {
        const double l = p[static_cast<size_t>(other)];
        if (taken.contains(other) || z - l > scoring.nearness * std::max(std::abs(l), z)) continue;
        near += std::exp(l - z);
      }
      taken.insert(e);
      route.weights.push_back(scoring.scale / near);
      continue;
    }
    route.weights.push_back(p[static_cast<size_t>(e)] / (args.renormalize ? sum : 1.0) *
                            static_cast<double>(scoring.scale));
  }
  return route;
}

// Returns y[t], [H].
inline std::vector<double> routed_moe_reference(const RoutedMoeArgs& args, int64_t t,
                                                const RouteReference& route) {
  const TensorView &x = args.x, &w13 = args.w13, &w2 = args.w2;
  const int64_t H = x.shape[1];
  const int64_t I = w2.shape[2];
  const auto bias = [](const TensorView& tensor, int64_t e, int64_t i) {
    return tensor.data == nullptr ? 0.0 : static_cast<double>(tensor.row<float>(e)[i]);
  };
  const auto limit = static_cast<double>(args.activation.limit);
  const auto alpha = static_cast<double>(args.activation.alpha);
  std::vector<double> y(static_cast<size_t>(H));
  for (size_t a = 0; a < route.experts.size(); ++a) {
    const int64_t e = route.experts[a];
    std::vector<double> hidden(static_cast<size_t>(I));
    for (int64_t i = 0; i < I; ++i) {
      double gate = bias(args.w13_bias, e, i);
      const bool has_gate = rows_per_hidden(args.activation.form) == 2;
      double up = has_gate ? bias(args.w13_bias, e, I + i) : 0.0;
      for (int64_t h = 0; h < H; ++h) {
        gate += element_of(x, t, h) * element_of(w13, e, i * H + h);
        if (has_gate) up += element_of(x, t, h) * element_of(w13, e, (I + i) * H + h);
      }
      double& h = hidden[static_cast<size_t>(i)];
      if (!has_gate) {
        h = std::max(gate, 0.0) * std::max(gate, 0.0);
      } else if (args.activation.form == ExpertForm::kGeglu) {
        const double cubic =
            std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
        h = gate / 2 * (1 + std::tanh(cubic)) * up;
      } else if (args.activation.form == ExpertForm::kBoundedSwiglu) {
        h = std::min(gate / (1.0 + std::exp(-gate)), limit) * std::clamp(up, -limit, limit);
      } else if (limit == 0) {
        h = gate / (1.0 + std::exp(-gate)) * up;
      } else {
        gate = std::min(gate, limit);
        up = std::clamp(up, -limit, limit);
        h = (up + 1) * gate / (1.0 + std::exp(-alpha * gate));
      }
    }
    for (int64_t h = 0; h < H; ++h) {
      double sum = bias(args.w2_bias, e, h);
      for (int64_t i = 0; i < I; ++i) {
        sum += hidden[static_cast<size_t>(i)] * element_of(w2, e, h * I + i);
      }
      y[static_cast<size_t>(h)] += route.weights[a] * sum;
    }
  }
  return y;
}

}  // namespace heddle::ops
