// SPDX-License-Identifier: Apache-2.0
#include "scheduler/deadlines.h"

#include <algorithm>
#include <limits>

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

}  // namespace heddle::scheduler
