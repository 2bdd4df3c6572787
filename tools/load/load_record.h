// SPDX-License-Identifier: Apache-2.0
// LoadRecord: the life of one measured request, as its client saw it. Times are seconds since the
// run began.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::tools {

struct LoadFailure {
  std::string kind;     // "HTTP 503", "connect", "cut", "timeout": counted by this
  std::string message;  // the server's, or the system's
};

struct LoadRecord {
  // Tokens that arrived together. Servers say rarely how many those are; one is assumed then.
  struct Arrival {
    double at = 0;
    int64_t tokens = 1;
  };

  double scheduled = 0;                  // planned time of sending
  double sent = 0;                       // just before its first byte was
  double ended = 0;                      // the answer was complete, or failed
  std::vector<Arrival> arrivals;         // events with text, in order
  std::optional<int64_t> input_tokens;   // input tokens that the server counted
  std::optional<int64_t> output_tokens;  // output tokens that the server counted
  int64_t cached_tokens = 0;             // cached input tokens that the server counted
  std::optional<LoadFailure> failure;
};

}  // namespace heddle::tools
