// SPDX-License-Identifier: Apache-2.0
// DraftWalk: behind the draws of a step, how many drafts of each sequence hold, found by the device
// (ops/sampling/walk_drafts.h), so that what follows can be enqueued before the host knows.
//
// Threading: confined. Cost: one launch a step, and that of SteadyBlock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heddle/request.h>

#include "device/device.h"
#include "ops/context.h"
#include "ops/sampling/walk_drafts.h"
#include "runner/steady_block.h"

namespace heddle::runner {

class DraftWalk {
 public:
  explicit DraftWalk(device::Device& device) : block_(device, 2) {}

  void begin();

  // `walked` without its list of endings and its place among the copies. Returns its index.
  int32_t add(ops::WalkedDrafts walked, std::span<const TokenId> endings);

  // `ids` of the step, and what it drew: those of WalkDraftsArgs.
  Status enqueue(ops::Context& context, device::Stream& stream, const int32_t* ids, int32_t* drawn);

  // Behind enqueue(), in memory of the device: by index, how many drafts do not hold.
  [[nodiscard]] const int32_t* missing() const { return missing_; }

  // Likewise the copies of states. The host's list is that of steps in which all drafts hold.
  [[nodiscard]] ops::MirroredSpan<ops::IdCopy> copies() const {
    return {.host = copies_if_all_, .device = copies_};
  }

 private:
  std::vector<ops::WalkedDrafts> walked_;
  std::vector<int32_t> endings_;
  std::vector<ops::IdCopy> copies_if_all_;
  SteadyBlock block_;  // these two, and what the launch writes
  const int32_t* missing_ = nullptr;
  const ops::IdCopy* copies_ = nullptr;
};

}  // namespace heddle::runner
