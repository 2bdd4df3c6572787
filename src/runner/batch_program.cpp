// SPDX-License-Identifier: Apache-2.0
#include "runner/batch_program.h"

#include <algorithm>
#include <utility>

namespace heddle::runner {

Result<std::unique_ptr<BatchProgram>> BatchProgram::create(graph::Graph graph,
                                                           const ComputeDevice& compute,
                                                           const ops::Extents& largest,
                                                           bool capture) {
  HEDDLE_ASSIGN_OR_RETURN(graph::Program program,
                          graph::compile(std::move(graph), ops::builtin_ops(), compute.context(),
                                         {.largest = largest}));
  HEDDLE_ASSIGN_OR_RETURN(graph::Executor executor,
                          graph::Executor::create(std::move(program), compute.device()));
  return std::unique_ptr<BatchProgram>(new BatchProgram(std::move(executor), compute, capture));
}

BatchProgram::BatchProgram(graph::Executor executor, const ComputeDevice& compute, bool capture)
    : executor_(std::move(executor)),
      compute_(&compute),
      captures_(capture && compute.device().can_capture() && !compute.shares_memory_with_host()) {}

Result<std::array<TensorView, 2>> BatchProgram::upload(std::span<const int32_t> ids,
                                                       std::span<const int32_t> positions,
                                                       ops::ForwardContext& forward) {
  const Shape rows{std::ssize(ids)};
  const auto views = [&](const int32_t* first, const int32_t* second) {
    return std::array{TensorView(first, DType::kI32, rows), TensorView(second, DType::kI32, rows)};
  };
  if (compute_->shares_memory_with_host()) return views(ids.data(), positions.data());
  device::Stream& stream = compute_->stream();
  const bool has_window_pages = !forward.window_page_table.empty();
  const int64_t width = ops::DeviceBatchUpload::width_of(forward);
  ops::DeviceBatchSizes& sizes = batch_sizes_;
  const bool fits = batch_ && forward.num_sequences() <= sizes.max_sequences &&
                    width <= sizes.max_pages_per_sequence &&
                    has_window_pages <= sizes.has_window_pages &&
                    std::ssize(forward.snapshots) <= sizes.max_snapshots;
  if (!fits) {
    sizes.max_rows = program().largest.tokens;
    sizes.max_logit_rows = program().largest.logits;
    sizes.max_sequences = std::max(sizes.max_sequences, 2 * forward.num_sequences());
    sizes.max_pages_per_sequence = std::max(sizes.max_pages_per_sequence, width);
    sizes.has_window_pages |= has_window_pages;
    sizes.max_snapshots = std::max(sizes.max_snapshots, 2 * std::ssize(forward.snapshots) + 16);
    HEDDLE_RETURN_IF_ERROR(stream.synchronize());
    step_graphs_.clear();  // they read the block that goes
    batch_.reset();
    HEDDLE_ASSIGN_OR_RETURN(batch_, ops::DeviceBatchUpload::create(compute_->device(), sizes));
  }
  HEDDLE_RETURN_IF_ERROR(batch_->upload(stream, ids, positions, forward));
  return views(batch_->ids(), batch_->positions());
}

Status BatchProgram::enqueue(std::span<const int32_t> ids, std::span<const int32_t> positions,
                             const ops::ForwardContext& batch, std::span<const TensorView> more,
                             DrawnFeed* feed) {
  const auto num_tokens = static_cast<int64_t>(ids.size());
  HEDDLE_RETURN_IF_ERROR(ops::check_batch(batch, num_tokens));
  ops::ForwardContext forward = batch;
  HEDDLE_ASSIGN_OR_RETURN(const auto rows, upload(ids, positions, forward));
  if (feed != nullptr) {
    HEDDLE_RETURN_IF_ERROR(feed->enqueue(compute_->context(), compute_->stream(), batch_->rows()));
  }
  inputs_.assign(rows.begin(), rows.end());
  inputs_.insert(inputs_.end(), more.begin(), more.end());
  const auto num_logits = static_cast<int64_t>(forward.logit_rows.size());
  HEDDLE_RETURN_IF_ERROR(executor_.set_extents(
      {.tokens = num_tokens, .logits = num_logits, .sequences = forward.num_sequences()}));
  const auto launch = [&] { return executor_.launch(compute_->context(), forward, inputs_); };
  if (!captures_ || forward.few_rows_each() == 0) return launch();
  return step_graphs_.run(compute_->stream(),
                          {.rows = num_tokens,
                           .sequences = forward.num_sequences(),
                           .logits = num_logits,
                           .page_table_width = forward.batch.page_table_width,
                           .input = more.empty() ? nullptr : more.front().data},
                          forward, launch);
}

}  // namespace heddle::runner
