// SPDX-License-Identifier: Apache-2.0
// ForwardBatch: a BatchPlan as the arrays a forward pass reads. Built anew every step in memory
// that was sized once. Threading: confined. Cost: build() is O(tokens + sequences * pages), without
// allocation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/forward_context.h"
#include "request/batch_plan.h"
#include "runner/pools.h"

namespace heddle::runner {

enum class LogitRows {
  kSampled,  // the last row of every sequence with `sample`
  kAll,
};

class ForwardBatch {
 public:
  ForwardBatch(int64_t max_tokens, int64_t max_sequences, int64_t max_pages_per_sequence,
               int32_t page_size);

  // Error: kInvalidArgument for a plan that exceeds the sizes above, has a sequence without new
  // tokens or with too few pages. The batch is empty then.
  Status build(const request::BatchPlan& plan, LogitRows logit_rows);

  [[nodiscard]] std::span<const int32_t> ids() const { return ids_; }

  [[nodiscard]] std::span<const int32_t> positions() const { return positions_; }

  // Valid until the next build().
  [[nodiscard]] ops::ForwardContext context(const Pools& pools) const;

 private:
  Status add(const request::PlannedSequence& sequence);

  int64_t max_tokens_;
  int64_t max_sequences_;
  int64_t page_table_width_;
  int32_t page_size_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> context_lens_;
  std::vector<int32_t> page_table_;
  std::vector<int32_t> state_slots_;
  std::vector<int32_t> logit_rows_;
  std::vector<ops::StateCheckpoint> checkpoints_;
};

}  // namespace heddle::runner
