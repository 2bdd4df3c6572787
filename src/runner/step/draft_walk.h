// SPDX-License-Identifier: Apache-2.0
// DraftWalk: behind the draws of a step, how many drafts of each sequence hold, found by the device
// (ops/drafting/walk_drafts.h), so that what follows can be enqueued before the host knows.
//
// Threading: confined. Cost: one launch a step, and that of SteadyBlock.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <heddle/request.h>

#include "device/device.h"
#include "device/staging.h"
#include "ops/context.h"
#include "ops/drafting/walk_drafts.h"
#include "runner/program/steady_block.h"

namespace heddle::runner {

class DraftWalk {
 public:
  DraftWalk(device::Device& device, int64_t max_in_flight)
      : told_(device, /*num_blocks=*/2), block_(device, max_in_flight) {}

  void begin();

  // The next sequence: `walked` without its list of endings and its place among the copies.
  void add(ops::WalkedDrafts walked, std::span<const TokenId> endings);

  // `ids` and the draws of the step: those of WalkDraftsArgs.
  Status enqueue(ops::Context& context, device::Stream& stream, const int32_t* ids, int32_t* drawn);

  // Behind enqueue(), in memory of the device: of each sequence that was added, how many drafts do
  // not hold.
  [[nodiscard]] const int32_t* missing() const { return missing_; }

  // The same on the host, once the stream has done it: of the last enqueue() or the one before.
  [[nodiscard]] std::span<const int32_t> told(bool is_last) const;

  // The copies of states, as above. The host's list assumes that all drafts are accepted.
  [[nodiscard]] ops::MirroredSpan<ops::IdCopy> copies() const {
    return {.host = copies_if_all_, .device = copies_};
  }

 private:
  device::ReadbackRing told_;          // rejected drafts per sequence
  std::array<int64_t, 2> num_told_{};  // of the last enqueue(), and of the one before
  std::vector<ops::WalkedDrafts> walked_;
  std::vector<int32_t> endings_;
  std::vector<ops::IdCopy> copies_if_all_;
  SteadyBlock block_;  // holds the two arrays above, and the launch's results
  const int32_t* missing_ = nullptr;
  const ops::IdCopy* copies_ = nullptr;
};

}  // namespace heddle::runner
