// SPDX-License-Identifier: Apache-2.0
#include "scheduler/queue_limit.h"

#include <algorithm>
#include <limits>
#include <string>

#include <fmt/format.h>

namespace heddle::scheduler {

namespace {

// The least urgent waiting request, the newest among equals, after `last` in that order; -1: none
// is left. Each round continues after the request chosen in the round before.
int32_t least_preferred(std::span<const QueuedRequest> waiting, const QueuedRequest* last) {
  const auto less_preferred = [](const QueuedRequest& a, const QueuedRequest& b) {
    return a.urgency != b.urgency ? a.urgency < b.urgency : a.arrival > b.arrival;
  };
  int32_t found = -1;
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (waiting[i].returned || (last != nullptr && !less_preferred(*last, waiting[i]))) continue;
    if (found < 0 || less_preferred(waiting[i], waiting[static_cast<size_t>(found)])) {
      found = static_cast<int32_t>(i);
    }
  }
  return found;
}

}  // namespace

Status enter_queue(std::span<const QueuedRequest> arriving, std::span<const QueuedRequest> waiting,
                   const QueueLimits& limits, std::vector<int32_t>& displaced) {
  displaced.clear();
  int64_t requests = 0;
  int64_t tokens = 0;
  for (const QueuedRequest& request : waiting) {
    requests += request.returned ? 0 : 1;
    tokens += request.returned ? 0 : request.tokens;
  }
  int64_t new_tokens = 0;
  int64_t urgency = std::numeric_limits<int64_t>::max();
  for (const QueuedRequest& request : arriving) {
    new_tokens += request.tokens;
    urgency = std::min(urgency, request.urgency);
  }
  const auto new_requests = std::ssize(arriving);
  const int64_t all_requests = requests;
  const int64_t all_tokens = tokens;
  const QueuedRequest* last = nullptr;
  for (;;) {
    const bool too_many = requests + new_requests - limits.num_open_slots > limits.max_requests;
    const bool too_long = requests > 0 && new_tokens > limits.max_tokens - tokens;
    if (!too_many && !too_long) return {};
    const int32_t index = limits.by_priority ? least_preferred(waiting, last) : -1;
    if (index < 0 || waiting[static_cast<size_t>(index)].urgency >= urgency) {
      displaced.clear();
      if (too_many) {
        const std::string together =
            new_requests == 1 ? "" : fmt::format(" and {} came at once", new_requests);
        return resource_exhausted(
            fmt::format("the queue is full: {} requests are waiting{}, max_queued_requests = {}; "
                        "try again later",
                        std::max<int64_t>(all_requests - limits.num_open_slots, 0), together,
                        limits.max_requests));
      }
      return resource_exhausted(fmt::format(
          "the queue is full: {} prompt tokens are waiting, {} {}, max_queued_tokens = {}; try "
          "again later",
          all_tokens, new_requests == 1 ? "the request brings" : "the requests bring", new_tokens,
          limits.max_tokens));
    }
    last = &waiting[static_cast<size_t>(index)];
    displaced.push_back(index);
    --requests;
    tokens -= last->tokens;
  }
}

Status displaced_error() {
  return resource_exhausted(
      "displaced: a more urgent request took this request's place in the full queue; try again "
      "later");
}

}  // namespace heddle::scheduler
