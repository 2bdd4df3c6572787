// SPDX-License-Identifier: Apache-2.0
// StepGraphs: captures segments of steps as CUDA graphs and replays them, so that each costs the
// host one call instead of one per kernel.
//
// A step whose sequences all have the same few rows is captured as its first launch and one segment
// after it. Its launches depend only on its shape (forward_context.h), the arrays they read are at
// addresses that depend only on the shape (device_batch.h), and the pools are those of the capture:
// a step with other pools drops all captures. Of other steps only the parts between the ops that
// depend on the batch (graph/passes.h) are captured; these depend on the number of rows and on no
// pool.
//
// A step is captured when its shape occurs for the second time. The first step of a shape runs
// eagerly, which chooses algorithms and loads kernels.
//
// Threading: confined to the thread that enqueues on the stream.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "graph/passes.h"
#include "ops/forward_context.h"
#include "runner/program/replay_check.h"

namespace heddle::runner {

// Which steps to capture, if the device can capture.
struct Captures {
  bool decode = true;             // capture steps whose sequences all have the same few rows
  int64_t max_prompt_rows = 512;  // most rows of other steps, which are captured in pieces; 0: do
                                  // not capture them

  // Checks the values that every step reads and writes, captured or not and on any device: slow.
  bool debug = false;
};

// The captures for the options of the same names.
[[nodiscard]] inline Captures captures_of(bool disable_cuda_graph,
                                          int64_t piecewise_cuda_graph_max_tokens,
                                          bool cuda_graph_debug) {
  return {.decode = !disable_cuda_graph,
          .max_prompt_rows = disable_cuda_graph ? 0 : piecewise_cuda_graph_max_tokens,
          .debug = cuda_graph_debug};
}

class StepGraphs {
 public:
  struct Shape {
    int64_t rows = 0;
    int64_t sequences = 0;  // steps captured in pieces leave this and the next three fields at
                            // their defaults
    int64_t logits = 0;
    int64_t page_table_width = 0;
    bool wants_all_rows = false;
    const void* input = nullptr;  // input in addition to the arrays of the batch
    auto operator<=>(const Shape&) const = default;
  };

  using Launch = std::function<Status(const graph::Segment&)>;

  // `check`: compares the inputs of captured launches with the present ones before each replay;
  // null: no check. It outlives the object.
  explicit StepGraphs(const ReplayCheck* check = nullptr) : check_(check) {}

  // Does for each segment of the step what `launch` enqueues on the stream: by replaying a captured
  // graph, by capturing one, or by calling `launch`. Split segments and segments with very few
  // nodes are always called. The segments must be the same for every step of a shape. If a capture
  // fails, all later steps run eagerly, and one line of the log says why. Error: that of `launch`
  // or of the check, or kDeviceLost.
  Status run(device::Stream& stream, const Shape& shape, const ops::ForwardContext& forward,
             std::span<const graph::Segment> segments, const Launch& launch);

  // Whether `launch` is being recorded: the work that it enqueues is not executed.
  [[nodiscard]] bool is_capturing() const { return is_capturing_; }

  // Whether the last run() did not replay a captured step, but the next one of its shape may.
  [[nodiscard]] bool warmed_up() const { return warmed_up_; }

  // Drops all captured steps, because their inputs have moved. None may be in flight.
  void clear() { steps_.clear(); }

  [[nodiscard]] int64_t num_captured() const;

 private:
  struct Step {
    // By segment; null for segments that are not captured. Empty: the shape has occurred only once.
    std::vector<std::unique_ptr<device::CapturedWork>> works;
    std::vector<graph::TakenValue> taken;  // values read by the captured launches; empty without a
                                           // check
    int64_t last_use = 0;
  };

  Status capture(device::Stream& stream, std::span<const graph::Segment> segments,
                 const Launch& launch, Step& step);
  Result<std::unique_ptr<device::CapturedWork>> captured(device::Stream& stream,
                                                         const graph::Segment& segment,
                                                         const Launch& launch);
  Status check_taken(const Shape& shape, const ops::ForwardContext& forward,
                     std::span<const graph::Segment> segments, Step& step) const;
  void forget_oldest();

  const ReplayCheck* check_;
  std::map<Shape, Step> steps_;
  std::vector<uintptr_t> pools_;  // pool addresses and strides of all captured steps
  std::vector<uintptr_t> asked_;  // pool addresses and strides of the step in run()
  int64_t num_runs_ = 0;
  bool failed_ = false;
  bool warmed_up_ = false;
  bool is_capturing_ = false;
};

}  // namespace heddle::runner
