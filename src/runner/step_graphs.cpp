// SPDX-License-Identifier: Apache-2.0
#include "runner/step_graphs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/log.h"

namespace heddle::runner {

namespace {

// Beyond this many the one that was not used longest goes: a graph takes memory of the device for
// each of its kernels.
constexpr size_t kMostSteps = 128;

// The addresses, strides and scales that launches take of the pools.
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
                       const ops::ForwardContext& forward, const std::function<Status()>& launch) {
  warmed_up_ = false;
  if (failed_) return launch();
  list_pools(forward, asked_);
  if (asked_ != pools_) {
    HEDDLE_RETURN_IF_ERROR(stream.synchronize());
    clear();
    pools_ = asked_;
  }
  const auto [found, is_new] = steps_.try_emplace(shape);
  Step& step = found->second;
  step.last_use = ++num_runs_;
  warmed_up_ = step.work == nullptr;
  if (is_new) {
    if (steps_.size() > kMostSteps) {
      HEDDLE_RETURN_IF_ERROR(stream.synchronize());
      forget_oldest();
    }
    return launch();
  }
  if (step.work == nullptr) {
    auto work = capture(stream, launch);
    if (!work.ok()) {
      failed_ = true;
      log_warning("a decode step cannot be captured as a graph and is launched kernel by kernel: " +
                  work.status().to_string());
      return launch();
    }
    step.work = std::move(*work);
  }
  return stream.launch(*step.work);
}

Result<std::unique_ptr<device::CapturedWork>> StepGraphs::capture(
    device::Stream& stream, const std::function<Status()>& launch) {
  HEDDLE_RETURN_IF_ERROR(stream.begin_capture());
  const Status launched = launch();
  auto work = stream.end_capture();  // ends it in any case
  HEDDLE_RETURN_IF_ERROR(launched);
  return work;
}

void StepGraphs::forget_oldest() {
  steps_.erase(std::ranges::min_element(steps_, {},
                                        [](const auto& entry) { return entry.second.last_use; }));
}

int64_t StepGraphs::num_captured() const {
  return std::ranges::count_if(steps_,
                               [](const auto& entry) { return entry.second.work != nullptr; });
}

}  // namespace heddle::runner
