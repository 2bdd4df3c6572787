// SPDX-License-Identifier: Apache-2.0
// The limit of the queue: which requests are refused or displaced when too many wait.
//
// The requests of one call enter together or not at all. Without priorities a full queue refuses
// the arriving call. With priorities it displaces the least urgent waiting request, the newest
// among equals, if every request of the call is strictly more urgent. If the call needs several
// displaced, all of them must be strictly less urgent, or none is. Requests that ran before do not
// count and are never displaced: a client may have read half of their answer.
//
// Threading: thread-confined. Cost: O(waiting), and O(waiting) more per displaced request.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <heddle/status.h>

namespace heddle::scheduler {

struct QueueLimits {
  int64_t max_requests = std::numeric_limits<int64_t>::max();  // most waiting requests; at least 1
  int64_t num_open_slots = 0;  // arriving requests that start without waiting, beyond max_requests
  // Most uncached prompt tokens of all waiting requests.
  int64_t max_tokens = std::numeric_limits<int64_t>::max();
  bool by_priority = false;
};

struct QueuedRequest {
  int64_t urgency = 0;    // base urgency, without aging
  int64_t arrival = 0;    // the request's id, unique
  int64_t tokens = 0;     // uncached prompt tokens of the request
  bool returned = false;  // the request ran before: it does not count and is not displaced
};

// Whether the call of `arriving` (at least one request) may be queued. If so, the waiting requests
// at the indices in `displaced` (overwritten; often empty) must leave the queue first, with
// displaced_error(). Error: kResourceExhausted, no request leaves. A queue in which no request
// counts accepts a call of any number of tokens: a call larger than max_tokens would otherwise be
// refused for ever.
[[nodiscard]] Status enter_queue(std::span<const QueuedRequest> arriving,
                                 std::span<const QueuedRequest> waiting, const QueueLimits& limits,
                                 std::vector<int32_t>& displaced);

// The error of a displaced request: kResourceExhausted; the text begins with "displaced:".
[[nodiscard]] Status displaced_error();

}  // namespace heddle::scheduler
