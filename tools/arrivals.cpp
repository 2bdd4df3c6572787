// SPDX-License-Identifier: Apache-2.0
#include "arrivals.h"

#include <cmath>
#include <random>

namespace heddle::tools {

std::vector<double> arrival_times(const ArrivalOptions& options, int64_t count) {
  std::mt19937_64 random(options.seed);
  // The distributions of the standard library may differ from one to the next.
  const auto exponential = [&random](double mean) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;  // [0, 1)
    return -std::log1p(-uniform) * mean;
  };
  const double gap = 1 / options.requests_per_second;
  std::vector<double> times;
  double now = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) {
      switch (options.kind) {
        case ArrivalKind::kPoisson:
          now += exponential(gap);
          break;
        case ArrivalKind::kUniform:
          now = static_cast<double>(i) * gap;
          break;
        case ArrivalKind::kBurst:
          if (i % options.burst_size == 0) {
            now += exponential(gap * static_cast<double>(options.burst_size));
          }
          break;
      }
    }
    times.push_back(now);
  }
  return times;
}

}  // namespace heddle::tools
