// SPDX-License-Identifier: Apache-2.0
// DraftWalk: finds on the device, after the draws of a step, how many drafts of each sequence are
// accepted (ops/drafting/walk_drafts.h), so that later work can be enqueued before the host knows.
//
// Threading: confined to one thread. Cost: one launch a step, and that of SteadyBlock.
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

  // Adds the next sequence. The function fills in the endings and the copy index of `walked`.
  void add(ops::WalkedDrafts walked, std::span<const TokenId> endings);

  // `ids` and `drawn` are those of the step, as in WalkDraftsArgs.
  Status enqueue(ops::Context& context, device::Stream& stream, const int32_t* ids, int32_t* drawn);

  // How many drafts of each added sequence are rejected, in device memory; valid after enqueue().
  [[nodiscard]] const int32_t* missing() const { return missing_; }

  // missing() in host memory, of the last enqueue() or of the one before. Valid once the stream has
  // executed it.
  [[nodiscard]] std::span<const int32_t> told(bool is_last) const;

  // The copies of states to working slots, in device memory. The host's list assumes that all
  // drafts are accepted.
  [[nodiscard]] ops::MirroredSpan<ops::IdCopy> copies() const {
    return {.host = copies_if_all_, .device = copies_};
  }

 private:
  device::ReadbackRing told_;          // rejected drafts by sequence
  std::array<int64_t, 2> num_told_{};  // numbers of sequences in the last enqueue() and in the one
                                       // before
  std::vector<ops::WalkedDrafts> walked_;
  std::vector<int32_t> endings_;
  std::vector<ops::IdCopy> copies_if_all_;
  SteadyBlock block_;  // holds walked_ and endings_, and the results of the launch
  const int32_t* missing_ = nullptr;
  const ops::IdCopy* copies_ = nullptr;
};

}  // namespace heddle::runner
