// SPDX-License-Identifier: Apache-2.0
// The limit of the queue: which requests are refused or displaced when too many wait.
//
// Requests arrive in calls, and a call enters whole or not at all. Without priorities it is the
// arriving call that is turned away. With priorities the least preferred waiting request, the least
// urgent and among those the newest, if all of the call is strictly more urgent; several if it
// takes several, all of them strictly less urgent, or none. Requests that ran before neither count
// nor can they be displaced: a client may have read half of their answer.
//
// Threading: thread-confined. Cost: O(waiting) per displaced request, O(waiting) otherwise.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <heddle/status.h>

namespace heddle::scheduler {

struct QueueLimits {
  int64_t max_requests = std::numeric_limits<int64_t>::max();  // waiting requests, at least 1
  int64_t num_open_slots = 0;  // further requests that start without waiting
  int64_t max_tokens = std::numeric_limits<int64_t>::max();  // waiting uncached prompt tokens
  bool by_priority = false;
};

struct QueuedRequest {
  int64_t urgency = 0;    // base
  int64_t arrival = 0;    // unique
  int64_t tokens = 0;     // uncached prompt tokens of the request
  bool returned = false;  // ran before: exempt
};

// Whether the call of `arriving` (at least one) may be queued. OK: those at the indices in
// `displaced` (replaced; often empty) leave the queue first, with displaced_error(). Error:
// kResourceExhausted, none leaves.
// A queue without countable requests takes a call of any number of tokens: one that is larger than
// max_tokens would otherwise be refused for ever.
[[nodiscard]] Status enter_queue(std::span<const QueuedRequest> arriving,
                                 std::span<const QueuedRequest> waiting, const QueueLimits& limits,
                                 std::vector<int32_t>& displaced);

// The error of a displaced request: kResourceExhausted; the text begins with "displaced:".
[[nodiscard]] Status displaced_error();

}  // namespace heddle::scheduler
