// SPDX-License-Identifier: Apache-2.0
// BatchProgram: a compiled graph over the rows of a batch; its first two inputs are token ids and
// positions. It uploads the arrays of a batch and replays captured graphs if the device can
// (step_graphs.h): decode steps as a whole, other steps with few enough rows in pieces.
//
// Threading: confined to one thread. Cost: enqueue() allocates nothing on the CPU; on other devices
// only in a step with more sequences, pages or snapshots than any before.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/program.h"
#include "ops/device_batch.h"
#include "runner/program/batch_padding.h"
#include "runner/program/compute_device.h"
#include "runner/program/drawn_feed.h"
#include "runner/program/step_graphs.h"

namespace heddle::runner {

class BatchProgram {
 public:
  // The device outlives the program. `max_in_flight`: number of steps that may be enqueued before
  // the device begins them; further calls wait.
  static Result<std::unique_ptr<BatchProgram>> create(graph::Graph graph,
                                                      const ComputeDevice& compute,
                                                      const ops::Extents& largest,
                                                      const Captures& captures,
                                                      int64_t max_in_flight = 2);

  // Enqueues a step of ids.size() rows without waiting. `more`: the other inputs, in device memory,
  // at addresses that depend only on the step's shape, followed by memory for the padding of a
  // captured step (batch_padding.h). Pages and slots are checked here, once for all ops of the
  // step; the caller checks ids. Error: kInvalidArgument, with the row or sequence; nothing is
  // computed then. `feed`: supplies the ids of rows that feed tokens drawn on the device.
  Status enqueue(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 const ops::ForwardContext& batch, std::span<const TensorView> more = {},
                 DrawnFeed* feed = nullptr);

  // The graph's output `i`, in device memory, without rows of padding. Valid until the next step.
  [[nodiscard]] MutableTensorView output(size_t i) const;

  // [T] ids of the last step in device memory. Only if the device does not read host memory.
  [[nodiscard]] const int32_t* device_ids() const { return batch_->ids(); }

  [[nodiscard]] const graph::Program& program() const { return executor_.program(); }

  [[nodiscard]] graph::Executor& executor() { return executor_; }

  // Whether the last step prepared later steps of its shape, which will take less time.
  [[nodiscard]] bool warmed_up() const { return warmed_up_; }

  // Number of captured steps that can be replayed.
  [[nodiscard]] int64_t num_captured() const { return step_graphs_.num_captured(); }

 private:
  BatchProgram(graph::Executor executor, const ComputeDevice& compute, const Captures& captures);

  // ids and positions in the form that ops read. Sets step.forward.batch if launchers need it.
  Result<std::array<TensorView, 2>> upload(BatchPadding::Step& step, DrawnFeed* feed);

  graph::Executor executor_;
  const ComputeDevice* compute_;
  Captures captures_;
  ops::DeviceBatchSizes batch_sizes_;
  std::optional<ops::DeviceBatchUpload> batch_;
  BatchPadding padding_;
  ReplayCheck replay_check_;
  StepGraphs step_graphs_;
  bool warmed_up_ = false;
  std::vector<TensorView> inputs_;  // the inputs of a step
  ops::Extents real_;               // sizes of the last step, without padding
};

}  // namespace heddle::runner
