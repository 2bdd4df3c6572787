// SPDX-License-Identifier: Apache-2.0
// The least number of bytes that a decode step must move: the roofline for its time.
#pragma once

#include <cstdint>

#include "runner/program/forward_pass.h"

namespace heddle::runner {

struct DecodeTraffic {
  double weight_bytes =
      0;  // every weight once; of routed experts the expected number of distinct ones
  double cache_bytes = 0;  // KV of the context read, recurrent states read and written

  [[nodiscard]] double total() const { return weight_bytes + cache_bytes; }
};

// The traffic of a step of `batch` sequences that decode after `context_tokens` tokens each,
// computed from the compiled program. Assumes even routing for distinct experts: E * (1 - (1 -
// A/E)^batch).
DecodeTraffic decode_traffic(const ForwardPass& pass, int64_t batch, int64_t context_tokens);

}  // namespace heddle::runner
