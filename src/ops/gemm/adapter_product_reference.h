// SPDX-License-Identifier: Apache-2.0
// adapter_shrink and adapter_expand, one after the other, in plain loops and double precision: the
// test oracle.
#pragma once

#include <cmath>
#include <vector>

#include "ops/gemm/linear_reference.h"

namespace heddle::ops {

// Returns the result [T, N] of both products, which are added to `y`. `x` [T, K], `a` [S, J, K],
// `b` [S, N, R], `parts` [S, N], `slots` [T], `scales` [S]. `magnitude`, if not null, gets the sums
// of absolute values that rounding errors are relative to.
inline std::vector<double> adapter_reference(const TensorView& x, const TensorView& a,
                                             const TensorView& b, const TensorView& parts,
                                             const TensorView& slots, const TensorView& scales,
                                             const TensorView& y,
                                             std::vector<double>* magnitude = nullptr) {
  const int64_t J = a.shape[1], K = a.shape[2], N = b.shape[1], R = b.shape[2];
  const auto matrices = [](const TensorView& stack) {
    return TensorView(stack.data, stack.dtype, {stack.shape[0] * stack.shape[1], stack.shape[2]});
  };
  const TensorView a_rows = matrices(a), b_rows = matrices(b);
  std::vector<double> out;
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    const int64_t s = slots.as<int32_t>()[t];
    for (int64_t n = 0; n < N; ++n) {
      double sum = element_of(y, t, n);
      double size = std::fabs(sum);
      for (int64_t r = 0; s >= 0 && r < R; ++r) {
        const int64_t j = parts.as<int32_t>()[s * N + n] * R + r;
        const double factor = scales.as<float>()[s] * element_of(b_rows, s * N + n, r);
        for (int64_t k = 0; k < K; ++k) {
          const double term = factor * element_of(x, t, k) * element_of(a_rows, s * J + j, k);
          sum += term;
          size += std::fabs(term);
        }
      }
      out.push_back(sum);
      if (magnitude != nullptr) magnitude->push_back(size);
    }
  }
  return out;
}

}  // namespace heddle::ops
