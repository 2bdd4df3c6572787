// SPDX-License-Identifier: Apache-2.0
// WeightExchange: an update of the weights, from its call to its answer.
//
// The new weights are read beside the steps (weight_reader.h). Then arrivals are held back, and
// when all requests before them have ended, the new weights take the place of the old ones between
// two steps: no step, and unless a pause has kept a request no answer, is of both.
//
// Threading: confined to the engine thread; callbacks run there.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <heddle/engine.h>

#include "engine/inbox.h"
#include "engine/stepper.h"
#include "engine/weight_reader.h"
#include "runner/runner.h"

namespace heddle::engine {

class WeightExchange {
 public:
  // The references outlive it. `own_thread`, `on_read`: as for WeightReader.
  WeightExchange(Stepper& stepper, Inbox& inbox, bool own_thread, std::function<void()> on_read);

  // Takes an update out of the mail, if there is one. The inbox lets in one at a time (checked).
  void add(Mail& mail);

  // Starts to read, and exchanges the weights when they are read and the requests before them have
  // ended; answers an update that was made or failed. A drain, the end or a failure of the engine
  // ends one that is not read yet.
  void run();

  // Answers an update that is left.
  void refuse(const Status& status);

  // New weights were read and wait to be used.
  [[nodiscard]] bool waiting() const { return new_weights_ != nullptr; }

 private:
  Status start();
  [[nodiscard]] bool ready();
  void use_weights();
  void answer(Result<WeightsUpdated> result);

  Stepper& stepper_;
  Inbox& inbox_;
  WeightReader reader_;
  std::optional<UpdateCall> call_;
  std::unique_ptr<runner::NewWeights> new_weights_;
};

}  // namespace heddle::engine
