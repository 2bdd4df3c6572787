// SPDX-License-Identifier: Apache-2.0
// Runner: carries out BatchPlans. The engine sees only this interface, so that tests can drive the
// whole engine with a fake runner.
//
// Threading: confined to the engine thread, except read_weights() and load_adapter().
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>

#include <heddle/adapter.h>

#include "cache/pool_sizes.h"
#include "request/batch_plan.h"
#include "request/step_limits.h"
#include "request/step_output.h"

namespace heddle::runner {

using cache::PoolSizes;

// Two steps keep the device busy while the host processes one step's output and plans the next.
inline constexpr int kMaxStepsInFlight = 2;

// The folder of a checkpoint.
struct WeightFolder {
  std::filesystem::path model_dir;
  bool dummy = false;  // reads only config.json; the weights are random, with a fixed seed
};

// Weights that a runner's read_weights() returned. Only that runner can use them.
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

  // Waits for the oldest step in flight and returns its tokens. An error, here or from submit(),
  // means that the whole step failed (the device is lost). The error of a single sequence is in its
  // SampledToken.
  virtual Result<request::StepOutput> wait() = 0;

  // Runs one step from beginning to end. No other step may be in flight.
  Result<request::StepOutput> run(const request::BatchPlan& plan) {
    HEDDLE_RETURN_IF_ERROR(submit(plan));
    return wait();
  }

  // Reads the weights of another checkpoint of the same model, as load_model() would, into memory
  // next to the weights in use, which stay unchanged. Any thread, also while steps run. Stops once
  // `cancelled` is true. Errors: those of loading, with the file or tensor; kInvalidArgument, with
  // the setting or weight, if the checkpoint has another model, dtype or quantisation; kCancelled;
  // kUnimplemented if weights cannot be exchanged.
  [[nodiscard]] virtual Result<std::unique_ptr<NewWeights>> read_weights(
      const WeightFolder& folder, const std::atomic<bool>& cancelled) const {
    (void)folder, (void)cancelled;
    return unimplemented("the weights of this runner cannot be exchanged");
  }

  // Replaces the weights in use by `weights`, those of the model and of the network that drafts. No
  // step may be in flight. Error: kDeviceLost; the weights are then a mixture of both checkpoints.
  virtual Status use_weights(const NewWeights& weights) {
    (void)weights;
    return unimplemented("the weights of this runner cannot be exchanged");
  }

  // Reads a LoRA adapter into a slot below AdapterOptions::num_slots. Any thread, one at a time,
  // also while steps run; no sequence of a step in flight may use the slot. Errors: those of
  // ForwardPass::load_adapter(); kUnimplemented if the runner takes no adapters.
  [[nodiscard]] virtual Result<Adapter> load_adapter(int32_t slot,
                                                     const std::filesystem::path& folder) const {
    (void)slot, (void)folder;
    return unimplemented("this runner takes no adapters");
  }

  // Takes back an output of wait() that the caller has processed, so that a later step can reuse
  // its memory.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those that use it keep it
  virtual void recycle(request::StepOutput) {}
};

}  // namespace heddle::runner
