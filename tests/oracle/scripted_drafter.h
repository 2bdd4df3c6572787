// SPDX-License-Identifier: Apache-2.0
// ScriptedDrafter: a drafter that knows every answer of a scenario, and tells the truth, lies, or
// does now this and now that.
//
// Threading: as Drafter.
#pragma once

#include <cstdint>
#include <map>

#include "dice.h"
#include "scenario.h"
#include "speculative/drafter.h"

namespace heddle::oracle {

class ScriptedDrafter final : public speculative::Drafter {
 public:
  // The scenario outlives it.
  explicit ScriptedDrafter(const Scenario& scenario) : scenario_(scenario), dice_(scenario.seed) {}

  void observe(const request::Sequence& sequence) override;
  void propose(const request::Sequence& sequence, int64_t most,
               speculative::Drafts& drafts) override;
  void forget(const request::Sequence& sequence) override;

 private:
  const Scenario& scenario_;
  Dice dice_;
  std::map<int64_t, int64_t> lengths_;  // by sequence id, as observed last
};

}  // namespace heddle::oracle
