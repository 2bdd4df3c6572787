// SPDX-License-Identifier: Apache-2.0
// moe_route and routed_moe in plain loops and double precision: the test oracles.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/gemm/linear_reference.h"

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

// y[t], [H]
inline std::vector<double> routed_moe_reference(const TensorView& x, const TensorView& w13,
                                                const TensorView& w2, int64_t t,
                                                const RouteReference& route) {
  const int64_t H = x.shape[1];
  const int64_t I = w2.shape[2];
  std::vector<double> y(static_cast<size_t>(H));
  for (size_t a = 0; a < route.experts.size(); ++a) {
    const int64_t e = route.experts[a];
    std::vector<double> hidden(static_cast<size_t>(I));
    for (int64_t i = 0; i < I; ++i) {
      double gate = 0;
      double up = 0;
      for (int64_t h = 0; h < H; ++h) {
        gate += element_of(x, t, h) * element_of(w13, e, i * H + h);
        up += element_of(x, t, h) * element_of(w13, e, (I + i) * H + h);
      }
      hidden[static_cast<size_t>(i)] = gate / (1.0 + std::exp(-gate)) * up;
    }
    for (int64_t h = 0; h < H; ++h) {
      double sum = 0;
      for (int64_t i = 0; i < I; ++i) {
        sum += hidden[static_cast<size_t>(i)] * element_of(w2, e, h * I + i);
      }
      y[static_cast<size_t>(h)] += route.weights[a] * sum;
    }
  }
  return y;
}

}  // namespace heddle::ops
