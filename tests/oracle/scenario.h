// SPDX-License-Identifier: Apache-2.0
// Scenario: a machine, its settings and the requests that come to it, all of it a function of one
// seed. Machines are small and prompts come from a few shared stems over three letters, so that
// prefixes, forks, repeats, turns that extend earlier answers and pools that run out are the rule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <heddle/engine.h>
#include <heddle/options.h>
#include <heddle/request.h>

#include "answer.h"
#include "dice.h"
#include "runner/runner.h"

namespace heddle::oracle {

struct Arrival {
  Request request;
  Answer answer;              // alone
  int64_t step = 0;           // comes before this step, or when nothing is left to do
  int64_t follows = -1;       // comes inside the last event of this arrival; negative: of none
  int64_t cancel_after = -1;  // steps after it came; negative: never
  int64_t cancel_at = -1;     // inside the event that brings its token of this number
  int64_t failing_draw = -1;  // its draw number that fails; negative: none
};

// The engine is paused before one step and goes on before a later one.
struct Pause {
  PauseMode mode = PauseMode::kInPlace;
  int64_t step = 0;
  int64_t until = 0;
};

// How good the drafts are.
enum class Drafts { kNone, kRight, kWrong, kRandom, kOftenRight };

// The draft for a position where the answer has `right`.
TokenId draft_of(Drafts drafts, TokenId right, TokenId num_tokens, Dice& dice);

struct Scenario {
  uint64_t seed = 0;

  runner::PoolSizes sizes;
  request::StepLimits limits;
  bool lazy = true;  // when the device computes
  AnswerRules rules;
  int64_t grid = 64;
  int64_t chunked_prefill_tokens = 64;
  int32_t max_queued_requests = 64;
  SchedulingOptions scheduling;
  CacheOptions cache;
  Drafts drafts = Drafts::kNone;
  int64_t max_drafts =
      0;  // of a sequence; the device makes them where limits.max_made_drafts says so
  bool branches_drafts = false;  // they are trees
  double seconds_per_step = 0;   // of no tokens; every 128 tokens take as long again

  // A call to clear the cache before this step, which waits so long until nothing runs.
  struct Clear {
    int64_t step = 0;
    double timeout_seconds = 0;
  };

  std::vector<Arrival> arrivals;  // in order of coming
  std::vector<Clear> clears;      // in order of their steps
  int64_t restart_step = -1;      // a new engine from there on; negative: never
  int64_t failing_step = -1;      // the device is lost in its step of this number; then as above

  std::vector<Pause> pauses;  // may overlap

  // Requests may be turned away, or end for want of time or of room in the queue.
  bool limits_queue = false;
  bool limits_time = false;

  // For messages: everything that is not an arrival.
  [[nodiscard]] std::string to_string() const;
};

Scenario make_scenario(uint64_t seed);

}  // namespace heddle::oracle
