// SPDX-License-Identifier: Apache-2.0
// QueueEntry: the part of a waiting sequence that the queue policies read. WaitingQueue fills one
// in for every waiting sequence before it orders them.
//
// Fields that a policy does not read may keep their defaults: fcfs reads `sequence` and `arrival`
// only; uses_prefix_cache() in queue_policy.h lists the policies that read the cache match.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "request/sequence.h"

namespace heddle::scheduler {

constexpr int64_t kNoLeader = -1;

struct QueueEntry {
  int32_t index = 0;  // index of the waiting sequence in the caller's list; policies only carry it
  request::Sequence* sequence = nullptr;
  int64_t arrival = 0;         // the sequence's id: unique, ascending in order of arrival; the last
                               // tie-breaker
  double queued_seconds = 0;   // seconds since the request arrived first
  bool returned = false;       // the sequence was retracted or preempted, so it ran before
  int64_t base_urgency = 0;    // urgency_of(); larger is more urgent; preemption compares this
                               // value
  int64_t urgency = 0;         // base_urgency raised by the waiting time (aged_urgency()); the
                               // order compares this value
  int64_t max_new_tokens = 0;  // limit of output tokens; read by the policy lof

  // The longest cached prefix of the sequence.
  int64_t matched_tokens = 0;        // cached tokens that the sequence can use; fewer than it has
  int64_t uncached_tokens = 0;       // tokens still to be computed: tokens - matched_tokens
  const void* match_node = nullptr;  // deepest matched node of the prefix tree; null: the root

  // Filled in by InBatchSharing::mark().
  bool deprioritized = false;  // an earlier sequence computes the same prefix, so this one comes
                               // last
  int64_t leader = kNoLeader;  // `arrival` of the sequence that computes the shared prefix;
                               // kNoLeader: none does
  int64_t shared_tokens = 0;   // length of the prefix shared with the leader, in tokens; 0 without
                               // leader

  std::string_view routing_key;  // the request's key for the policy routing-key; empty: it has none
  int64_t routing_running = 0;   // number of running sequences with the same routing key
  int64_t engine_prefilled = 0;  // prompt tokens that the engine computed since the request
                                 // arrived; read by the policy hrrn
  int32_t tenant = 0;            // number of the tenant, FairShare::tenant(); read by the policy
                                 // fair
  // Seconds to spare (deadlines.h); read by the policy fair.
  double slack_seconds = std::numeric_limits<double>::infinity();
};

}  // namespace heddle::scheduler
