// SPDX-License-Identifier: Apache-2.0
// DrawnFeed: hands the tokens that a step draws to the step behind it on the device, where that one
// is launched before the host knows them (ops/drafting/feed_drawn.h); drafts likewise.
//
// Threading: confined. Cost: that of SteadyBlock.
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

  // Begins a step that draws from `num_logit_rows` rows and feeds on what was drawn before:
  // the pointers are those of FeedDrawnArgs.
  void begin(int64_t num_logit_rows, const int32_t* drawn, const int32_t* drawn_ids = nullptr,
             const int32_t* missing = nullptr, const uint64_t* masks = nullptr);

  // `fed` without its list of endings.
  void add(ops::FedRow fed, std::span<const TokenId> endings);

  // For the launch that brings the `rows` of the step (ops/bring_batch.h); what it reads is on its
  // way to the device then.
  Result<ops::FeedDrawnArgs> prepare(device::Stream& stream, const ops::DeviceBatchRows& rows);

  // SampleRowsArgs::ended of the last step; null if it fed no drawn tokens.
  [[nodiscard]] const int32_t* ended() const { return ended_; }

 private:
  int64_t num_logit_rows_ = 0;
  const int32_t* drawn_ = nullptr;
  const int32_t* drawn_ids_ = nullptr;
  const int32_t* missing_ = nullptr;
  const uint64_t* masks_ = nullptr;
  std::vector<ops::FedRow> fed_;
  std::vector<int32_t> endings_;
  SteadyBlock block_;  // holds the arrays above, and a number for each row of logits
  const int32_t* ended_ = nullptr;
};

}  // namespace heddle::runner
