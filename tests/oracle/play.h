// SPDX-License-Identifier: Apache-2.0
// Plays a scenario through the real engine, scheduler and cache over the toy device, and compares
// every event with the answer that the request gets alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan_watcher.h"
#include "scenario.h"
#include "support/fake_runner.h"

namespace heddle::oracle {

// Counts of what a scenario reached; added up over many of them.
struct PlayCounts {
  PlanCounts plans;
  int64_t requests = 0;
  int64_t refused = 0;
  int64_t whole_answers = 0;  // compared to the last token
  int64_t ended_early = 0;    // aborts and failed draws
  int64_t requests_with_reuse = 0;
  int64_t reused_tokens = 0;
  int64_t unusable_tokens = 0;  // matched beyond what was reused
  int64_t exact_repeats = 0;
  int64_t pauses = 0;
  int64_t ghost_hits = 0;  // would have reused more, had nothing been evicted
  int64_t clears = 0;      // of the cache; refused ones are counted below
  int64_t clears_refused = 0;
  int64_t accepted_drafts = 0;
  int64_t rejected_drafts = 0;
  int64_t forced_tokens = 0;       // by forms of answers
  int64_t drafter_rows_taken = 0;  // by a drafter that reads texts, of rows written for others

  PlayCounts& operator+=(const PlayCounts& other);
};

struct Outcome {
  // Empty: everything is as it should be.
  std::vector<std::string> complaints;     // of the toy device
  std::vector<std::string> wrong_answers;  // tokens, texts, ends, reports
  PlayCounts counts;

  [[nodiscard]] bool clean() const { return complaints.empty() && wrong_answers.empty(); }

  // The first few of both.
  [[nodiscard]] std::string to_string() const;
};

// With faults of the device's verification, too; they count as damages.
Outcome play(const Scenario& scenario, Damage damage = Damage::kNone,
             testing::VerifyFault fault = testing::VerifyFault::kNone);

}  // namespace heddle::oracle
