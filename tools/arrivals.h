// SPDX-License-Identifier: Apache-2.0
// When the requests of an open loop are sent: at times that do not depend on the answers.
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle::tools {

enum class ArrivalKind : uint8_t {
  kPoisson,  // exponential gaps: users who know nothing of each other
  kUniform,  // equal gaps
  kBurst,    // several at once, the bursts as kPoisson
};

struct ArrivalOptions {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double requests_per_second = 1;
  int64_t burst_size = 8;
  uint64_t seed = 1;
};

// `count` times in seconds, ascending, the first 0. Equal for equal options on every machine.
std::vector<double> arrival_times(const ArrivalOptions& options, int64_t count);

}  // namespace heddle::tools
