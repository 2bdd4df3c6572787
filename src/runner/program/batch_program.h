// SPDX-License-Identifier: Apache-2.0
// BatchProgram: a compiled graph over the rows of a batch, whose first two inputs are token ids and
// positions. It brings the arrays of a batch to the device, and replays captured graphs where the
// device can (step_graphs.h): steps that decode as a whole, others of not too many rows in pieces.
//
// Threading: confined. Cost: enqueue() allocates nothing on the CPU; elsewhere only where a step
// has more sequences, pages or snapshots than any before.
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
  // The device outlives the program. `max_in_flight`: steps that are enqueued while the device has
  // not begun them; more wait.
  static Result<std::unique_ptr<BatchProgram>> create(graph::Graph graph,
                                                      const ComputeDevice& compute,
                                                      const ops::Extents& largest,
                                                      const Captures& captures,
                                                      int64_t max_in_flight = 2);

  // Computes a step of ids.size() rows, without waiting. `more`: the other inputs, in memory of the
  // device, at addresses that depend on nothing but the step's shape, with memory behind them for
  // the padding of a step that is captured (batch_padding.h). Pages and slots are checked
  // here, once for all ops of the step; ids are the caller's to check. Error: kInvalidArgument,
  // naming the row or sequence; nothing is computed then. `feed`: brings the ids of rows that feed
  // on draws which the device makes.
  Status enqueue(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 const ops::ForwardContext& batch, std::span<const TensorView> more = {},
                 DrawnFeed* feed = nullptr);

  // The graph's i-th output, in memory of the device, without rows of padding; valid until the next
  // step.
  [[nodiscard]] MutableTensorView output(size_t i) const;

  // [T] of the last step in memory of the device, where that is not the host's.
  [[nodiscard]] const int32_t* device_ids() const { return batch_->ids(); }

  [[nodiscard]] const graph::Program& program() const { return executor_.program(); }

  [[nodiscard]] graph::Executor& executor() { return executor_; }

  // Whether the last step ran for the first times, so that later ones of its shape take less time.
  [[nodiscard]] bool warmed_up() const { return warmed_up_; }

  // Steps that were captured and can be launched again.
  [[nodiscard]] int64_t num_captured() const { return step_graphs_.num_captured(); }

 private:
  BatchProgram(graph::Executor executor, const ComputeDevice& compute, const Captures& captures);

  // ids and positions as the ops take them; sets step.forward.batch where launchers need it.
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
  std::vector<TensorView> inputs_;  // inputs of a step
  ops::Extents real_;               // extents of the last step, without padding
};

}  // namespace heddle::runner
