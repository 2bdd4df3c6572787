// SPDX-License-Identifier: Apache-2.0
// ControlCalls: carries out pauses, clears of the cache and inspections, and answers their callers.
//
// A pause begins or ends at once. A clear waits until no request uses the cache, at most until its
// deadline. An inspection copies the engine's state; requests only lose the time of the copy.
//
// Threading: confined to the engine thread; callbacks run there.
#pragma once

#include <vector>

#include <heddle/engine.h>

#include "core/clock.h"
#include "engine/inbox.h"
#include "engine/stepper.h"

namespace heddle::engine {

class ControlCalls {
 public:
  // The references outlive the object.
  ControlCalls(Stepper& stepper, Inbox& inbox, const Clock& clock);

  // Moves the control calls out of the messages in `mail`.
  void add(Mail& mail);

  // Carries out and answers the calls that need not wait. Once the engine has failed, pauses and
  // inspections are answered with the reason.
  void run();

  // Answers all pending calls with this error.
  void refuse(const Status& status);

  // Whether clear calls wait for requests to end or for their time limit.
  [[nodiscard]] bool waiting() const { return !clears_.empty(); }

 private:
  void run_pauses();
  void run_clears();
  void run_inspections();
  [[nodiscard]] Result<Inspection> look(const InspectionCall& call) const;
  void answer_clears(const Status& status);

  Stepper& stepper_;
  Inbox& inbox_;
  const Clock& clock_;
  const Status out_of_memory_;  // allocated early: later memory for it may be short
  std::vector<PauseCall> pauses_;
  std::vector<ClearCall> clears_;
  std::vector<InspectionCall> inspections_;
};

}  // namespace heddle::engine
