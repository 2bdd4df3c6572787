// SPDX-License-Identifier: Apache-2.0
// ControlCalls: pauses, clears of the cache and inspections, from their arrival to their answer.
//
// A pause is made, or ends, at once; a clear waits until no request uses the cache, at most until
// its deadline; an inspection copies the state and costs the requests no more than its time.
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
  // The references outlive it.
  ControlCalls(Stepper& stepper, Inbox& inbox, const Clock& clock);

  // Takes the control calls out of the mail.
  void add(Mail& mail);

  // Carries out what can be now and answers it. Once the engine has failed, pauses and inspections
  // get the reason.
  void run();

  // Answers all that are left.
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
  const Status out_of_memory_;  // made while memory was left
  std::vector<PauseCall> pauses_;
  std::vector<ClearCall> clears_;
  std::vector<InspectionCall> inspections_;
};

}  // namespace heddle::engine
