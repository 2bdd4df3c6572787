// SPDX-License-Identifier: Apache-2.0
#include "runner/program/step_graphs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/log.h"

namespace heddle::runner {

namespace {

// With more captured steps than this, the one unused for longest is dropped: a graph needs device
// memory for each of its kernels.
constexpr size_t kMostSteps = 128;

// Segments with fewer nodes are not captured: launching them costs the host as much as a graph.
constexpr size_t kFewestNodes = 3;

Status launch_all(std::span<const graph::Segment> segments, const StepGraphs::Launch& launch) {
  for (const graph::Segment& segment : segments) HEDDLE_RETURN_IF_ERROR(launch(segment));
  return {};
}

// Lists the addresses, strides and scales that launches read from the pools.
void list_pools(const ops::ForwardContext& forward, std::vector<uintptr_t>& pools) {
  pools.clear();
  const auto add = [&](const MutableTensorView& tensor) {
    pools.push_back(reinterpret_cast<uintptr_t>(tensor.data));
    pools.push_back(static_cast<uintptr_t>(tensor.row_stride));
  };
  pools.push_back(static_cast<uintptr_t>(forward.page_size));
  for (const ops::KvLayer& layer : forward.kv_layers) {
    add(layer.k);
    add(layer.v);
    pools.push_back(std::bit_cast<uint32_t>(layer.k_scale));
    pools.push_back(std::bit_cast<uint32_t>(layer.v_scale));
  }
  for (const ops::StateLayer& layer : forward.state_layers) {
    add(layer.conv);
    add(layer.recurrent);
  }
  for (const ops::SnapshotLayer& layer : forward.snapshot_layers) {
    add(layer.conv);
    add(layer.recurrent);
    add(layer.scales);
  }
}

}  // namespace

Status StepGraphs::run(device::Stream& stream, const Shape& shape,
                       const ops::ForwardContext& forward, std::span<const graph::Segment> segments,
                       const Launch& launch) {
  warmed_up_ = false;
  if (failed_) return launch_all(segments, launch);
  list_pools(forward, asked_);
  if (asked_ != pools_) {
    HEDDLE_RETURN_IF_ERROR(stream.synchronize());
    clear();
    pools_ = asked_;
  }
  const auto [found, is_new] = steps_.try_emplace(shape);
  Step& step = found->second;
  step.last_use = ++num_runs_;
  warmed_up_ = step.works.empty();
  if (is_new) {
    if (steps_.size() > kMostSteps) {
      HEDDLE_RETURN_IF_ERROR(stream.synchronize());
      forget_oldest();
    }
    return launch_all(segments, launch);
  }
  if (step.works.empty()) {
    const Status captured = capture(stream, segments, launch, step);
    if (!captured.ok()) {
      failed_ = true;
      step.works.clear();
      log_warning(
          "a step cannot be captured as a graph, so that steps are launched kernel by kernel: " +
          captured.to_string() +
          "; a lower --memory-fraction leaves graphs more memory, fewer sizes are captured with "
          "--max-running-requests or --disable-piecewise-cuda-graph, none with "
          "--disable-cuda-graph");
      return launch_all(segments, launch);
    }
  }
  if (check_ != nullptr) HEDDLE_RETURN_IF_ERROR(check_taken(shape, forward, segments, step));
  for (size_t i = 0; i < segments.size(); ++i) {
    const device::CapturedWork* work = step.works[i].get();
    HEDDLE_RETURN_IF_ERROR(work != nullptr ? stream.launch(*work) : launch(segments[i]));
  }
  return {};
}

// Records the segments; nothing of the step is executed.
Status StepGraphs::capture(device::Stream& stream, std::span<const graph::Segment> segments,
                           const Launch& launch, Step& step) {
  for (const graph::Segment& segment : segments) {
    std::unique_ptr<device::CapturedWork>& work = step.works.emplace_back();
    if (segment.split || segment.end - segment.begin < kFewestNodes) continue;
    HEDDLE_ASSIGN_OR_RETURN(work, captured(stream, segment, launch));
  }
  return {};
}

Result<std::unique_ptr<device::CapturedWork>> StepGraphs::captured(device::Stream& stream,
                                                                   const graph::Segment& segment,
                                                                   const Launch& launch) {
  HEDDLE_RETURN_IF_ERROR(stream.begin_capture());
  is_capturing_ = true;
  const Status launched = launch(segment);
  is_capturing_ = false;
  auto work = stream.end_capture();  // the capture must end in any case
  HEDDLE_RETURN_IF_ERROR(launched);
  return work;
}

// Compares the values read by a captured step with the present ones; stores them for a new step.
Status StepGraphs::check_taken(const Shape& shape, const ops::ForwardContext& forward,
                               std::span<const graph::Segment> segments, Step& step) const {
  std::vector<graph::TakenValue> taken;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (step.works[i] != nullptr) check_->list(segments[i], taken);
  }
  check_->list_batch(forward.batch, /*whole=*/shape.sequences > 0, taken);
  if (step.taken.empty()) step.taken = taken;
  return check_->compare(step.taken, taken);
}

void StepGraphs::forget_oldest() {
  steps_.erase(std::ranges::min_element(steps_, {},
                                        [](const auto& entry) { return entry.second.last_use; }));
}

int64_t StepGraphs::num_captured() const {
  return std::ranges::count_if(steps_,
                               [](const auto& entry) { return !entry.second.works.empty(); });
}

}  // namespace heddle::runner
