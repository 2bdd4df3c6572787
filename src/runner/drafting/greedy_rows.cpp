// SPDX-License-Identifier: Apache-2.0
#include "runner/drafting/greedy_rows.h"

#include "core/check.h"
#include "sampling/sampling_slot.h"

namespace heddle::runner {

Result<GreedyRows> GreedyRows::create(device::Device& device, device::Stream& stream,
                                      int64_t max_rows, int64_t vocab_size, int32_t top_logprobs) {
  GreedyRows greedy;
  greedy.max_rows_ = max_rows;
  greedy.vocab_size_ = vocab_size;
  greedy.kind_ = top_logprobs < 0 ? ops::DrawKind::kBest : ops::DrawKind::kAny;
  const int64_t rows_bytes = max_rows * static_cast<int64_t>(sizeof(ops::SamplingRow));
  const int64_t table_bytes =
      rows_bytes + max_rows * static_cast<int64_t>(sizeof(ops::SamplingSlot));
  HEDDLE_ASSIGN_OR_RETURN(const device::Buffer table, device.allocate_pinned(table_bytes));
  auto* rows = reinterpret_cast<ops::SamplingRow*>(table.data());
  auto* slots = reinterpret_cast<ops::SamplingSlot*>(table.data() + rows_bytes);
  for (int64_t row = 0; row < max_rows; ++row) {
    rows[row] = {.slot = static_cast<int32_t>(row), .publish = 1};
    slots[row] = sampling::sampling_slot({.temperature = 0}, 0, 0, vocab_size);
    slots[row].top_logprobs = top_logprobs;
  }
  HEDDLE_ASSIGN_OR_RETURN(greedy.table_, device.allocate(table_bytes));
  HEDDLE_ASSIGN_OR_RETURN(
      greedy.sampled_, device.allocate(max_rows * static_cast<int64_t>(sizeof(ops::SampledRow))));
  HEDDLE_ASSIGN_OR_RETURN(greedy.workspace_,
                          device.allocate(ops::sample_rows_workspace_bytes(max_rows, vocab_size)));
  HEDDLE_RETURN_IF_ERROR(stream.copy(greedy.table_.data(), table.data(), table_bytes));
  HEDDLE_RETURN_IF_ERROR(stream.synchronize());
  return greedy;
}

ops::SampleRowsArgs GreedyRows::args(const MutableTensorView& logits, int64_t num_rows) {
  HEDDLE_CHECK_LE(num_rows, max_rows_);
  const auto* rows = reinterpret_cast<const ops::SamplingRow*>(table_.data());
  return {.logits = {logits.data, logits.dtype, Shape{num_rows, vocab_size_}, logits.row_stride},
          .rows = rows,
          .slots = reinterpret_cast<const ops::SamplingSlot*>(rows + max_rows_),
          .kind = kind_,
          .sampled = reinterpret_cast<ops::SampledRow*>(sampled_.data()),
          .workspace = workspace_.bytes()};
}

}  // namespace heddle::runner
