// SPDX-License-Identifier: Apache-2.0
// StepGraphs: steps whose sequences all have the same few rows, captured once and launched again as
// a whole, so that a decode step costs the host one call instead of one for each kernel.
//
// A step is captured when one of its shape comes for the second time; the first one runs eagerly
// and so chooses algorithms and loads kernels. Launches of such steps depend on their shape alone
// (forward_context.h), the arrays they read lie at addresses that depend on it alone
// (device_batch.h), and the pools are those of the capture: a step with others forgets all.
//
// Threading: confined to the thread that drives the stream.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "device/device.h"
#include "ops/forward_context.h"

namespace heddle::runner {

class StepGraphs {
 public:
  struct Shape {
    int64_t rows = 0;
    int64_t sequences = 0;
    int64_t logits = 0;
    int64_t page_table_width = 0;
    const void* input = nullptr;  // that it reads beside the arrays of the batch
    auto operator<=>(const Shape&) const = default;
  };

  // Does what `launch` enqueues on the stream: through a captured graph, by capturing it, or by
  // calling it. Where a capture fails, steps run eagerly from then on, and one line of the log says
  // why. Error: that of `launch`, or kDeviceLost.
  Status run(device::Stream& stream, const Shape& shape, const ops::ForwardContext& forward,
             const std::function<Status()>& launch);

  // Whether the last run() did not launch a step captured before, but may do so next time.
  [[nodiscard]] bool warmed_up() const { return warmed_up_; }

  // Forgets all steps: what they read has moved. None of them is under way.
  void clear() { steps_.clear(); }

  [[nodiscard]] int64_t num_captured() const;

 private:
  struct Step {
    std::unique_ptr<device::CapturedWork> work;  // none: seen once
    int64_t last_use = 0;
  };

  Result<std::unique_ptr<device::CapturedWork>> capture(device::Stream& stream,
                                                        const std::function<Status()>& launch);
  void forget_oldest();

  std::map<Shape, Step> steps_;
  std::vector<uintptr_t> pools_;  // of all captured steps
  std::vector<uintptr_t> asked_;  // of the step that is asked for
  int64_t num_runs_ = 0;
  bool failed_ = false;
  bool warmed_up_ = false;
};

}  // namespace heddle::runner
