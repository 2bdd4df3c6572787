// SPDX-License-Identifier: Apache-2.0
// Sizes that a count is rounded up to, so that few different ones occur: 1, 2, 4, 8, 12, 16, 24,
// 32, 48 and so on, two to an octave from 8 on. From there on a count grows by less than half.
#pragma once

#include <bit>
#include <cstdint>

namespace heddle {

// The smallest of these sizes that is not below `count`, which is positive.
[[nodiscard]] constexpr int64_t rounded_to_size_class(int64_t count) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  const int64_t between = power / 4 * 3;
  return power > 8 && count <= between ? between : power;
}

}  // namespace heddle
