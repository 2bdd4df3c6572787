// SPDX-License-Identifier: Apache-2.0
// UseCount: how often something was used, where a use is worth half as much after every half-life.
//
// All counts fade at one pace, so which of two is larger does not change while neither is used.
// log2_at_zero() makes use of that: it is the count seen from tick 0, comparable at any time, and
// an order by it needs no refreshing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace heddle::cache {

struct UseCount {
  double count = 0;   // at `tick`
  uint64_t tick = 0;  // of the last use

  // A count that is at least one at `now`.
  void begin_at(uint64_t now, double half_life) {
    count = std::max(faded(now, half_life), 1.0);
    tick = now;
  }

  void add(uint64_t now, double half_life) {
    count = faded(now, half_life) + 1;
    tick = now;
  }

  [[nodiscard]] double faded(uint64_t now, double half_life) const {
    return count * std::exp2(-static_cast<double>(now - tick) / half_life);
  }

  // The count must not be zero.
  [[nodiscard]] double log2_at_zero(double half_life) const {
    return std::log2(count) + static_cast<double>(tick) / half_life;
  }
};

}  // namespace heddle::cache
