// SPDX-License-Identifier: Apache-2.0
// DrawnFeed: hands the tokens that a step draws to the step behind it on the device, where that one
// is launched before the host knows them (ops/sampling/feed_drawn.h); drafts likewise.
//
// Threading: confined. Cost: one launch a step, and one copy where rows are fed otherwise than in
// the last step; allocates only where a step has more rows or ending tokens than any before. Blocks
// of the host are used in turn: one is written again when as many steps as may be in flight have
// begun since.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <heddle/request.h>

#include "device/device.h"
#include "ops/context.h"
#include "ops/device_batch.h"
#include "ops/sampling/feed_drawn.h"

namespace heddle::runner {

class DrawnFeed {
 public:
  DrawnFeed(device::Device& device, int64_t max_steps_in_flight)
      : device_(&device), pinned_(static_cast<size_t>(max_steps_in_flight)) {}

  // Begins a step that draws from `num_logit_rows` rows and feeds on what was drawn before:
  // `drawn` and `drawn_ids` as those of FeedDrawnArgs.
  void begin(int64_t num_logit_rows, const int32_t* drawn, const int32_t* drawn_ids = nullptr);

  // `fed` without its list of endings.
  void add(ops::FedRow fed, std::span<const TokenId> endings);

  [[nodiscard]] bool empty() const { return asked_.fed.empty(); }

  // Enqueues it: `rows` of the step, uploaded before. With empty() nothing happens.
  Status enqueue(ops::Context& context, device::Stream& stream,
                 const ops::DeviceBatchUpload::Rows& rows);

  // Of the last step, SampleRowsArgs::ended; null where it fed on nothing.
  [[nodiscard]] const int32_t* ended() const { return ended_; }

 private:
  // The block's contents: these rows, their endings, and a zero for each row of logits. Rows that
  // feed write theirs, so that in a step like the one before the others still are zero.
  struct Block {
    int64_t num_logit_rows = 0;
    std::vector<ops::FedRow> fed;
    std::vector<int32_t> endings;

    friend bool operator==(const Block&, const Block&) = default;

    [[nodiscard]] int64_t endings_at() const;
    [[nodiscard]] int64_t ended_at() const;
    [[nodiscard]] int64_t num_bytes() const;
  };

  Status upload(device::Stream& stream);

  device::Device* device_;
  const int32_t* drawn_ = nullptr;
  const int32_t* drawn_ids_ = nullptr;
  Block asked_;
  Block uploaded_;  // what block_ holds
  std::vector<device::Buffer> pinned_;
  size_t next_ = 0;  // of pinned_
  device::Buffer block_;
  const int32_t* ended_ = nullptr;
};

}  // namespace heddle::runner
