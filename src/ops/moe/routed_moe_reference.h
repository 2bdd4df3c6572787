// SPDX-License-Identifier: Apache-2.0
// moe_route and routed_moe in plain loops and double precision: the test oracles.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
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

// y[t], [H]
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
      double up = bias(args.w13_bias, e, I + i);
      for (int64_t h = 0; h < H; ++h) {
        gate += element_of(x, t, h) * element_of(w13, e, i * H + h);
        up += element_of(x, t, h) * element_of(w13, e, (I + i) * H + h);
      }
      double& h = hidden[static_cast<size_t>(i)];
      if (limit == 0) {
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
