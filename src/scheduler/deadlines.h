// SPDX-License-Identifier: Apache-2.0
// Deadlines: how much time a request has to spare, and when its time is up.
//
// `ttft_slo_seconds` is a target: it only moves a request forward among its tenant's requests.
// `deadline_seconds` is a promise: a request that exceeds it ends with an error.
//
// Threading: thread-compatible. Cost: O(1).
#pragma once

#include <cstdint>

#include <heddle/options.h>
#include <heddle/status.h>

#include "request/sequence.h"

namespace heddle::scheduler {

// Measured speed of the engine; 0: not measured yet, work is assumed to take no time.
struct ServiceRates {
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;  // decode rate of one sequence
};

struct DeadlineView {
  double ttft_slo_seconds = 0;     // target for the time from arrival to the first token; 0: none
  double deadline_seconds = 0;     // limit for the time from arrival to the end; 0: none
  double elapsed_seconds = 0;      // seconds since the request arrived
  int64_t uncached_tokens = 0;     // prompt tokens still to be computed
  int64_t output_tokens_left = 0;  // expected output tokens still to come; 0: unknown
  bool has_first_token = false;    // the first token was drawn, so ttft_slo_seconds no longer
                                   // matters
};

// Seconds to spare: the smaller of target - elapsed - prefill time and deadline - elapsed - prefill
// time - output time. Infinite without target and deadline; negative when one of them can no longer
// be met.
[[nodiscard]] double slack_seconds(const DeadlineView& request, const ServiceRates& rates);

// TimeLimits checks the deadlines of requests, queue_timeout_seconds and running_timeout_seconds.
class TimeLimits {
 public:
  explicit TimeLimits(const SchedulingOptions& options);

  // Called when a request arrives.
  void note(const Request& request);

  // False while no request can time out: check() need not be called then.
  [[nodiscard]] bool any() const { return any_; }

  // Whether the sequence has time left at `now_seconds`. With `never_ran` it still waits for its
  // first step, and queue_timeout_seconds applies; otherwise running_timeout_seconds does. Error:
  // kDeadlineExceeded; the text begins with "deadline_exceeded:", "queue_timeout:" or
  // "running_timeout:".
  [[nodiscard]] Status check(const request::Sequence& sequence, bool never_ran,
                             double now_seconds) const;

 private:
  double queue_timeout_seconds_;
  double running_timeout_seconds_;
  bool any_;
};

}  // namespace heddle::scheduler
