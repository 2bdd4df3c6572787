// SPDX-License-Identifier: Apache-2.0
// Element-wise conversion of weights between fp32, bf16 and fp16, bit for bit what the scalar
// functions of core/dtype.h define.
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"

namespace heddle::checkpoint {

// True for fp32, bf16 and fp16: the formats a weight may be converted from and to.
[[nodiscard]] constexpr bool is_convertible(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16;
}

// Converts `count` elements; equal dtypes are copied, whatever they are. Neither side need be
// aligned. Different dtypes must both be convertible. Cost: bandwidth-bound on one core.
void convert_elements(const void* source, DType source_dtype, void* target, DType target_dtype,
                      int64_t count);

// The index of the first element that is infinite or not a number; none if there is none. `dtype`
// must be convertible.
[[nodiscard]] std::optional<int64_t> first_not_finite(const void* data, DType dtype, int64_t count);

}  // namespace heddle::checkpoint
