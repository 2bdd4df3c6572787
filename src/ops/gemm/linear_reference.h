// SPDX-License-Identifier: Apache-2.0
// linear in plain loops and double precision: the test oracle.
#pragma once

#include <cmath>
#include <vector>

#include "core/check.h"
#include "core/dtype.h"
#include "core/tensor.h"

namespace heddle::ops {

// Element `index` of row `row` as double, whatever the dtype.
inline double element_of(const TensorView& tensor, int64_t row, int64_t index) {
  switch (tensor.dtype) {
    case DType::kF32:
      return static_cast<double>(tensor.row<float>(row)[index]);
    case DType::kBf16:
      return static_cast<double>(to_float(tensor.row<Bf16>(row)[index]));
    case DType::kF16:
      return static_cast<double>(to_float(tensor.row<F16>(row)[index]));
    default:
      HEDDLE_CHECK(false && "a floating dtype");
      return 0;
  }
}

struct LinearReference {
  std::vector<double> y;  // [T, N]
  std::vector<double>
      magnitude;  // [T, N]: sum of |x w| + |bias|, what rounding errors are relative to
};

inline LinearReference linear_reference(const TensorView& x, const TensorView& weight,
                                        const TensorView& bias) {
  const int64_t T = x.shape[0];
  const int64_t K = x.shape[1];
  const int64_t N = weight.shape[0];
  LinearReference result;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t n = 0; n < N; ++n) {
      double sum = bias.data == nullptr ? 0.0 : static_cast<double>(bias.as<float>()[n]);
      double magnitude = std::fabs(sum);
      for (int64_t k = 0; k < K; ++k) {
        const double term = element_of(x, t, k) * element_of(weight, n, k);
        sum += term;
        magnitude += std::fabs(term);
      }
      result.y.push_back(sum);
      result.magnitude.push_back(magnitude);
    }
  }
  return result;
}

}  // namespace heddle::ops
