// SPDX-License-Identifier: Apache-2.0
// DrawnFeed: supplies the tokens that a step drew on the device to the next step, which is launched
// before the host knows them (ops/drafting/feed_drawn.h). Drafts are supplied the same way.
//
// Threading: confined to one thread. Cost: that of SteadyBlock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heddle/request.h>

#include "device/device.h"
#include "ops/drafting/feed_drawn.h"
#include "runner/program/steady_block.h"

namespace heddle::runner {

class DrawnFeed {
 public:
  DrawnFeed(device::Device& device, int64_t max_steps_in_flight)
      : block_(device, max_steps_in_flight) {}

  // Begins a step that draws from `num_logit_rows` rows and feeds tokens drawn before. The pointers
  // are those of FeedDrawnArgs.
  void begin(int64_t num_logit_rows, const int32_t* drawn, const int32_t* drawn_ids = nullptr,
             const int32_t* missing = nullptr, const uint64_t* masks = nullptr);

  // Adds a row that is fed. The function fills in the list of ending tokens of `fed`.
  void add(ops::FedRow fed, std::span<const TokenId> endings);

  // The arguments for the launch that uploads the `rows` of the step (ops/bring_batch.h). Enqueues
  // the upload of the arrays that this launch reads.
  Result<ops::FeedDrawnArgs> prepare(device::Stream& stream, const ops::DeviceBatchRows& rows);

  // For SampleRowsArgs::ended of the last step; null if it fed no drawn tokens.
  [[nodiscard]] const int32_t* ended() const { return ended_; }

 private:
  int64_t num_logit_rows_ = 0;
  const int32_t* drawn_ = nullptr;
  const int32_t* drawn_ids_ = nullptr;
  const int32_t* missing_ = nullptr;
  const uint64_t* masks_ = nullptr;
  std::vector<ops::FedRow> fed_;
  std::vector<int32_t> endings_;
  SteadyBlock block_;  // holds the arrays above, and a flag for each row of logits
  const int32_t* ended_ = nullptr;
};

}  // namespace heddle::runner
