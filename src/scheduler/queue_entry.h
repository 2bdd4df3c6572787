// SPDX-License-Identifier: Apache-2.0
// QueueEntry: the part of a waiting sequence that the queue policies read. WaitingQueue fills one
// in for every waiting sequence before it orders them.
//
// Fields that a policy does not read may keep their defaults: fcfs needs `sequence` and `arrival`
// only (uses_prefix_cache() in queue_policy.h lists the policies that read the match).
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "request/sequence.h"

namespace heddle::scheduler {

constexpr int64_t kNoLeader = -1;

struct QueueEntry {
  int32_t index = 0;  // for the caller
  request::Sequence* sequence = nullptr;
  int64_t arrival = 0;         // number of the first arrival, unique: the sequence's id; the last
                               // tie-breaker
  double queued_seconds = 0;   // since the first arrival
  bool returned = false;       // retracted or preempted: ran before
  int64_t base_urgency = 0;    // urgency_of(); larger is more urgent; preemption compares it
  int64_t urgency = 0;         // base_urgency, aged; the order compares it
  int64_t max_new_tokens = 0;  // lof

  // The match against the prefix cache.
  int64_t matched_tokens = 0;        // usable, so at most tokens - 1
  int64_t uncached_tokens = 0;       // tokens - matched_tokens
  const void* match_node = nullptr;  // the deepest node matched; null: the root

  // Set by InBatchSharing.
  bool deprioritized = false;  // an earlier sequence computes the same prefix: last in this pass
  int64_t leader = kNoLeader;  // the leader's `arrival`
  int64_t shared_tokens = 0;   // length of the prefix they share; 0 without leader

  std::string_view routing_key;  // routing-key; empty: none
  int64_t routing_running = 0;   // running sequences with this key
  int64_t engine_prefilled = 0;  // hrrn: prompt tokens the engine computed since the arrival
  int32_t tenant = 0;            // fair: FairShare::tenant()
  double slack_seconds = std::numeric_limits<double>::infinity();  // fair: time left, see
                                                                   // deadlines.h
};

}  // namespace heddle::scheduler
