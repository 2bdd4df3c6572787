// SPDX-License-Identifier: Apache-2.0
// The collectives in plain loops: the test oracles.
#pragma once

#include <bit>
#include <vector>

#include "ops/collective/collective.h"
#include "ops/gemm/linear_reference.h"

namespace heddle::ops {

// Element [t, n] of all_reduce(), computed in double. `ranks` has the tensor of each rank.
inline double all_reduce_reference(const std::vector<TensorView>& ranks, int64_t t, int64_t n) {
  double sum = 0;
  for (const TensorView& x : ranks) sum += element_of(x, t, n);
  return sum;
}

// The bits of element [t, n] of Reduction::kBits.
inline uint32_t all_reduce_bits_reference(const std::vector<TensorView>& ranks, int64_t t,
                                          int64_t n) {
  uint32_t bits = 0;
  for (const TensorView& x : ranks) bits += std::bit_cast<uint32_t>(x.row<float>(t)[n]);
  return bits;
}

// Element [t, n] of gather_columns().
inline double gather_columns_reference(const std::vector<TensorView>& ranks, int64_t t, int64_t n) {
  size_t rank = 0;
  while (n >= ranks[rank].shape[1]) n -= ranks[rank++].shape[1];
  return element_of(ranks[rank], t, n);
}

}  // namespace heddle::ops
