// SPDX-License-Identifier: Apache-2.0
// LoadRecord: the times of one measured request, as seen by its client, in seconds since the run
// began.
//
// Threading: plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::tools {

struct LoadFailure {
  std::string kind;  // kind by which failures are counted: "HTTP 503", "connect", "cut", "timeout"
  std::string message;  // message of the server or the system
};

struct LoadRecord {
  // Tokens that arrived together. Servers rarely send how many they are; then one is assumed.
  struct Arrival {
    double at = 0;
    int64_t tokens = 1;
  };

  double scheduled = 0;                  // when the request was planned to be sent
  double sent = 0;                       // when it was sent, just before the first byte
  double ended = 0;                      // when the answer was complete or had failed
  std::vector<Arrival> arrivals;         // the events with text, in order of arrival
  std::optional<int64_t> input_tokens;   // input tokens that the server counted
  std::optional<int64_t> output_tokens;  // output tokens that the server counted
  int64_t cached_tokens = 0;             // cached input tokens that the server counted
  std::optional<LoadFailure> failure;
};

}  // namespace heddle::tools
