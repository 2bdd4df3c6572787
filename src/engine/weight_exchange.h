// SPDX-License-Identifier: Apache-2.0
// WeightExchange: carries out an update of the weights and answers its caller.
//
// The new weights are read while steps run (weight_reader.h). Then arrivals are held back, and when
// all earlier requests have ended, the new weights replace the old ones between two steps. No step
// uses both sets of weights, and no answer does unless a pause has kept its request.
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
  // The references outlive the object. `own_thread`, `on_read`: see WeightReader.
  WeightExchange(Stepper& stepper, Inbox& inbox, bool own_thread, std::function<void()> on_read);

  // Moves an update out of the mail, if there is one. The inbox accepts one at a time (checked).
  void add(Mail& mail);

  // Advances the update: starts reading, and exchanges the weights once they are read and the
  // earlier requests have ended. Answers an update that succeeded or failed. A drain, the end or a
  // failure of the engine ends an update whose weights are not read yet.
  void run();

  // Answers a pending update with this error.
  void refuse(const Status& status);

  // Whether new weights have been read and are not in use yet.
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
