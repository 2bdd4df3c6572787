// SPDX-License-Identifier: Apache-2.0
// Deadlines: how much time a request has to spare, and when its time is up.
//
// `ttft_slo_seconds` is a target that only moves a request forward among its tenant's requests;
// `deadline_seconds` is a promise: past it, the request ends with an error.
//
// Threading: thread-compatible. Cost: O(1).
#pragma once

#include <cstdint>

#include <heddle/options.h>
#include <heddle/status.h>

#include "request/sequence.h"

namespace heddle::scheduler {

// Speed of the engine; 0: unknown, work takes no time.
struct ServiceRates {
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;  // rate of one sequence
};

struct DeadlineView {
  double ttft_slo_seconds = 0;  // from arrival; 0: none
  double deadline_seconds = 0;  // from arrival; 0: none
  double elapsed_seconds = 0;   // since arrival
  int64_t uncached_tokens = 0;
  int64_t output_tokens_left = 0;  // expected; 0 when unknown
  bool has_first_token = false;    // the target was met or missed and counts no more
};

// Seconds to spare: the least of the target less the prefill, and the deadline less prefill and
// output. Infinite without either; negative when it cannot be met any more.
[[nodiscard]] double slack_seconds(const DeadlineView& request, const ServiceRates& rates);

// TimeLimits: the requests' deadlines, queue_timeout_seconds and running_timeout_seconds.
class TimeLimits {
 public:
  explicit TimeLimits(const SchedulingOptions& options);

  // Called when a request arrives.
  void note(const Request& request);

  // False while no request can run out of time: nothing has to be checked then.
  [[nodiscard]] bool any() const { return any_; }

  // Whether the sequence has time left at `now_seconds`; `never_ran`: it waits for its first step.
  // Error: kDeadlineExceeded; the text begins with "deadline_exceeded:", "queue_timeout:" or
  // "running_timeout:".
  [[nodiscard]] Status check(const request::Sequence& sequence, bool never_ran,
                             double now_seconds) const;

 private:
  double queue_timeout_seconds_;
  double running_timeout_seconds_;
  bool any_;
};

}  // namespace heddle::scheduler
