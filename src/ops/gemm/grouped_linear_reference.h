// SPDX-License-Identifier: Apache-2.0
// grouped_linear in plain loops and double precision: the test oracle.
#pragma once

#include "ops/gemm/grouped_linear.h"
#include "ops/gemm/linear_reference.h"

namespace heddle::ops {

inline LinearReference grouped_linear_reference(const GroupedLinearArgs& args) {
  const int64_t E = args.weight.shape[0];
  const int64_t N = args.weight.shape[1];
  const int64_t K = args.weight.shape[2];
  LinearReference result;
  for (int64_t e = 0; e < E; ++e) {
    const auto* expert = static_cast<const std::byte*>(args.weight.data) +
                         bytes_of(args.weight.dtype, e * args.weight.row_stride);
    const TensorView weight(expert, args.weight.dtype, {N, K});
    const auto* offsets = args.row_offsets.as<int32_t>();
    for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
      const int64_t s = args.x_rows.data == nullptr ? r : args.x_rows.as<int32_t>()[r];
      const TensorView row(args.x.row<float>(s), DType::kF32, {1, K});
      const LinearReference one = linear_reference(row, weight, {});
      result.y.insert(result.y.end(), one.y.begin(), one.y.end());
      result.magnitude.insert(result.magnitude.end(), one.magnitude.begin(), one.magnitude.end());
    }
  }
  return result;
}

}  // namespace heddle::ops
