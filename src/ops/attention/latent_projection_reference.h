// SPDX-License-Identifier: Apache-2.0
// The products of latent_projection.h in plain loops and double: the oracle of the tests.
#pragma once

#include <vector>

#include "ops/attention/latent_projection.h"
#include "ops/gemm/linear_reference.h"

namespace heddle::ops {

// y [T, N * (C + Dr)]
inline std::vector<double> absorb_query_reference(const LatentProjectionArgs& args) {
  const int64_t N = args.num_heads, Dn = args.key_dim, C = args.weight.shape[1];
  const int64_t per_head = args.weight.shape[0] / N, D = args.x.shape[1] / N;
  std::vector<double> y;
  for (int64_t t = 0; t < args.x.shape[0]; ++t) {
    for (int64_t h = 0; h < N; ++h) {
      for (int64_t c = 0; c < C; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < Dn; ++j) {
          sum += element_of(args.weight, h * per_head + j, c) * element_of(args.x, t, h * D + j);
        }
        y.push_back(sum);
      }
      for (int64_t j = Dn; j < D; ++j) y.push_back(element_of(args.x, t, h * D + j));
    }
  }
  return y;
}

// y [T, N * Dv]
inline std::vector<double> expand_values_reference(const LatentProjectionArgs& args) {
  const int64_t N = args.num_heads, C = args.weight.shape[1];
  const int64_t per_head = args.weight.shape[0] / N;
  std::vector<double> y;
  for (int64_t t = 0; t < args.x.shape[0]; ++t) {
    for (int64_t h = 0; h < N; ++h) {
      for (int64_t j = args.key_dim; j < per_head; ++j) {
        double sum = 0;
        for (int64_t c = 0; c < C; ++c) {
          sum += element_of(args.weight, h * per_head + j, c) * element_of(args.x, t, h * C + c);
        }
        y.push_back(sum);
      }
    }
  }
  return y;
}

}  // namespace heddle::ops
