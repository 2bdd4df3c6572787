// SPDX-License-Identifier: Apache-2.0
// StepGraphs: segments of steps, captured once and launched again, so that they cost the host one
// call instead of one for each kernel.
//
// A step whose sequences all have the same few rows is its first launch and one segment behind it.
// Its launches depend on its shape alone (forward_context.h), the arrays they read lie at addresses
// that depend on it alone (device_batch.h), and the pools are those of the capture: a step with
// others forgets all. Of other steps what lies between the ops that depend on the batch
// (graph/passes.h) depends on the number of rows, and on no pool.
//
// A step is captured when one of its shape comes for the second time; the first one runs eagerly
// and so chooses algorithms and loads kernels.
//
// Threading: confined to the thread that drives the stream.
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

// The steps to capture, if the device can capture.
struct Captures {
  bool decode = true;             // steps whose sequences all have the same few rows
  int64_t max_prompt_rows = 512;  // limit for other steps, which are captured in pieces; 0: none

  // Checks what every step reads and writes, captured or not and on any device: slow.
  bool debug = false;
};

// From the options of the same names.
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
    int64_t sequences = 0;  // in a step of several segments these four stay the same
    int64_t logits = 0;
    int64_t page_table_width = 0;
    bool wants_all_rows = false;
    const void* input = nullptr;  // input besides the arrays of the batch
    auto operator<=>(const Shape&) const = default;
  };

  using Launch = std::function<Status(const graph::Segment&)>;

  // `check`: compares the inputs of captured launches with the current ones before each replay;
  // null: no check. It outlives this.
  explicit StepGraphs(const ReplayCheck* check = nullptr) : check_(check) {}

  // Does what `launch` enqueues on the stream for each segment of the step, which are those of
  // every step of its shape: through a captured graph, by capturing it, or by calling it, as always
  // for split segments and those of so few nodes that a graph gains nothing. Where a capture fails,
  // steps run eagerly from then on, and one line of the log says why. Error: that of `launch` or of
  // the check, or kDeviceLost.
  Status run(device::Stream& stream, const Shape& shape, const ops::ForwardContext& forward,
             std::span<const graph::Segment> segments, const Launch& launch);

  // Whether `launch` is called to be recorded: nothing that it enqueues is done.
  [[nodiscard]] bool is_capturing() const { return is_capturing_; }

  // Whether the last run() did not launch a step captured before, but may do so next time.
  [[nodiscard]] bool warmed_up() const { return warmed_up_; }

  // Drops all captured steps, whose inputs have moved. None is in flight.
  void clear() { steps_.clear(); }

  [[nodiscard]] int64_t num_captured() const;

 private:
  struct Step {
    // By segment, null for those that are not captured; empty: seen once.
    std::vector<std::unique_ptr<device::CapturedWork>> works;
    std::vector<graph::TakenValue> taken;  // by the captured launches; empty without a check
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
  std::vector<uintptr_t> pools_;  // pool addresses of all captured steps
  std::vector<uintptr_t> asked_;  // pool addresses of the requested step
  int64_t num_runs_ = 0;
  bool failed_ = false;
  bool warmed_up_ = false;
  bool is_capturing_ = false;
};

}  // namespace heddle::runner
