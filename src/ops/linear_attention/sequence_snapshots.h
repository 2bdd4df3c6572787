// SPDX-License-Identifier: Apache-2.0
// The snapshots of one sequence out of the batch's sorted list.
#pragma once

#include <algorithm>
#include <span>

#include "ops/forward_context.h"

namespace heddle::ops {

inline std::span<const StateSnapshot> snapshots_of(const ForwardContext& forward,
                                                   int64_t sequence) {
  const auto [first, last] = std::equal_range(
      forward.snapshots.begin(), forward.snapshots.end(),
      StateSnapshot{.sequence = static_cast<int32_t>(sequence)},
      [](const StateSnapshot& a, const StateSnapshot& b) { return a.sequence < b.sequence; });
  return {first, last};
}

}  // namespace heddle::ops
