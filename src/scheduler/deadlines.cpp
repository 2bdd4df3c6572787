// SPDX-License-Identifier: Apache-2.0
#include "scheduler/deadlines.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace heddle::scheduler {

namespace {

double seconds_for(int64_t tokens, double tokens_per_second) {
  return tokens_per_second > 0 ? static_cast<double>(tokens) / tokens_per_second : 0;
}

}  // namespace

double slack_seconds(const DeadlineView& request, const ServiceRates& rates) {
  const double prefill = seconds_for(request.uncached_tokens, rates.prefill_tokens_per_second);
  double slack = std::numeric_limits<double>::infinity();
  if (request.ttft_slo_seconds > 0 && !request.has_first_token) {
    slack = request.ttft_slo_seconds - request.elapsed_seconds - prefill;
  }
  if (request.deadline_seconds > 0) {
    const double output = seconds_for(request.output_tokens_left, rates.decode_tokens_per_second);
    slack = std::min(slack, request.deadline_seconds - request.elapsed_seconds - prefill - output);
  }
  return slack;
}

TimeLimits::TimeLimits(const SchedulingOptions& options)
    : queue_timeout_seconds_(options.queue_timeout_seconds),
      running_timeout_seconds_(options.running_timeout_seconds),
      any_(queue_timeout_seconds_ > 0 || running_timeout_seconds_ > 0) {}

void TimeLimits::note(const Request& request) {
  if (request.deadline_seconds > 0) any_ = true;
}

Status TimeLimits::check(const request::Sequence& sequence, bool never_ran,
                         double now_seconds) const {
  const double elapsed = now_seconds - sequence.timings.submit_seconds;
  const double deadline = sequence.request.deadline_seconds;
  if (deadline > 0 && sequence.request.waited_seconds + elapsed > deadline) {
    return timed_out(
        fmt::format("deadline_exceeded: the request asked for an answer within {} s", deadline));
  }
  if (never_ran) {
    if (queue_timeout_seconds_ <= 0 || elapsed <= queue_timeout_seconds_) return {};
    return timed_out(
        fmt::format("queue_timeout: the request waited longer than {} s", queue_timeout_seconds_));
  }
  const double started = sequence.timings.first_step_seconds;
  if (running_timeout_seconds_ <= 0 || started < 0 ||
      now_seconds - started <= running_timeout_seconds_) {
    return {};
  }
  return timed_out(
      fmt::format("running_timeout: the request ran longer than {} s", running_timeout_seconds_));
}

}  // namespace heddle::scheduler
