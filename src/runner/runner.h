// SPDX-License-Identifier: Apache-2.0
// Runner: carries out a BatchPlan. The engine sees only this interface, so that tests drive the
// whole engine with a fake one.
//
// Threading: confined to the engine thread, except read_weights().
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>

#include "cache/pool_sizes.h"
#include "request/batch_plan.h"
#include "request/step_limits.h"
#include "request/step_output.h"

namespace heddle::runner {

using cache::PoolSizes;

// Enough to keep the device busy while the host accounts for one step and plans the next.
inline constexpr int kMaxStepsInFlight = 2;

// The folder of a checkpoint.
struct WeightFolder {
  std::filesystem::path model_dir;
  bool dummy = false;  // reads only config.json; weights are random with a seed
};

// Weights from read_weights(). Opaque to all but that runner.
class NewWeights {
 public:
  virtual ~NewWeights() = default;
};

class Runner {
 public:
  virtual ~Runner() = default;

  [[nodiscard]] virtual const PoolSizes& pool_sizes() const = 0;
  [[nodiscard]] virtual const request::StepLimits& step_limits() const = 0;

  // Starts a step. Steps run in the order of submission; at most kMaxStepsInFlight may be submitted
  // and not waited for (checked). The plan must stay unchanged until wait() has returned its
  // output.
  virtual Status submit(const request::BatchPlan& plan) = 0;

  // Waits for the oldest step in flight and returns its tokens. A Status, here or from submit(), is
  // a failure of the whole step (the device is lost); what is wrong with one sequence is in its
  // SampledToken.
  virtual Result<request::StepOutput> wait() = 0;

  // One step from beginning to end; none is in flight.
  Result<request::StepOutput> run(const request::BatchPlan& plan) {
    HEDDLE_RETURN_IF_ERROR(submit(plan));
    return wait();
  }

  // Reads the weights of another checkpoint of the same model, as they would have been loaded at
  // the start, beside those in use, which stay as they are. Any thread, also while steps run. Once
  // `cancelled` is true it gives up. Errors: those of loading, naming the file or tensor;
  // kInvalidArgument, naming the setting or weight, where the checkpoint is not of the same model,
  // dtype and quantisation; kCancelled; kUnimplemented where weights cannot be exchanged.
  [[nodiscard]] virtual Result<std::unique_ptr<NewWeights>> read_weights(
      const WeightFolder& folder, const std::atomic<bool>& cancelled) const {
    (void)folder, (void)cancelled;
    return unimplemented("the weights of this runner cannot be exchanged");
  }

  // Puts them in the place of those in use, of the model and of what drafts with it. No step is in
  // flight. Error: kDeviceLost; the weights are then of both.
  virtual Status use_weights(const NewWeights& weights) {
    (void)weights;
    return unimplemented("the weights of this runner cannot be exchanged");
  }

  // Takes back an output of wait() that has been processed, so that a later step can use its
  // memory.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those that use it keep it
  virtual void recycle(request::StepOutput) {}
};

}  // namespace heddle::runner
