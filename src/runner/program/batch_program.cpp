// SPDX-License-Identifier: Apache-2.0
#include "runner/program/batch_program.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "graph/write_check.h"

namespace heddle::runner {

Result<std::unique_ptr<BatchProgram>> BatchProgram::create(graph::Graph graph,
                                                           const ComputeDevice& compute,
                                                           const ops::Extents& largest,
                                                           const Captures& captures,
                                                           int64_t max_in_flight) {
  HEDDLE_ASSIGN_OR_RETURN(graph::Program program,
                          graph::compile(std::move(graph), ops::builtin_ops(), compute.context(),
                                         {.largest = largest}));
  HEDDLE_ASSIGN_OR_RETURN(graph::Executor executor,
                          graph::Executor::create(std::move(program), compute.device()));
  if (captures.debug) log_info("the compiled " + graph::dump(executor.program()));
  std::unique_ptr<BatchProgram> created(new BatchProgram(std::move(executor), compute, captures));
  created->batch_sizes_.max_in_flight = max_in_flight;
  return created;
}

BatchProgram::BatchProgram(graph::Executor executor, const ComputeDevice& compute,
                           const Captures& captures)
    : executor_(std::move(executor)),
      compute_(&compute),
      captures_(captures),
      replay_check_(executor_),
      step_graphs_(captures.debug ? &replay_check_ : nullptr) {
  if (compute.device().can_capture() && !compute.shares_memory_with_host()) return;
  captures_.decode = false;
  captures_.max_prompt_rows = 0;
}

Result<std::array<TensorView, 2>> BatchProgram::upload(BatchPadding::Step& step, DrawnFeed* feed) {
  const auto& [ids, positions, forward] = step;
  const Shape rows{std::ssize(ids)};
  const auto views = [&](const int32_t* first, const int32_t* second) {
    return std::array{TensorView(first, DType::kI32, rows), TensorView(second, DType::kI32, rows)};
  };
  if (compute_->shares_memory_with_host()) return views(ids.data(), positions.data());
  device::Stream& stream = compute_->stream();
  const size_t num_tables = forward.num_page_tables();
  const int64_t width = ops::DeviceBatchUpload::width_of(forward);
  ops::DeviceBatchSizes& sizes = batch_sizes_;
  const bool fits = batch_ && forward.num_sequences() <= sizes.max_sequences &&
                    width <= sizes.max_pages_per_sequence && num_tables <= sizes.num_page_tables &&
                    std::ssize(forward.snapshots) <= sizes.max_snapshots;
  if (!fits) {
    sizes.max_rows = program().largest.tokens;
    sizes.max_logit_rows = program().largest.logits;
    sizes.max_sequences = std::max(sizes.max_sequences, 2 * forward.num_sequences());
    sizes.max_pages_per_sequence = std::max(sizes.max_pages_per_sequence, width);
    sizes.num_page_tables = std::max(sizes.num_page_tables, num_tables);
    sizes.max_snapshots = std::max(sizes.max_snapshots, 2 * std::ssize(forward.snapshots) + 16);
    HEDDLE_RETURN_IF_ERROR(stream.synchronize());
    step_graphs_.clear();  // they read the block that is freed here
    batch_.reset();
    HEDDLE_ASSIGN_OR_RETURN(batch_, ops::DeviceBatchUpload::create(compute_->device(), sizes));
  }
  HEDDLE_RETURN_IF_ERROR(batch_->lay_out(stream, ids, positions, step.forward));
  ops::FeedDrawnArgs fed;
  if (feed != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(fed, feed->prepare(stream, batch_->rows()));
  }
  HEDDLE_RETURN_IF_ERROR(batch_->bring(compute_->context(), stream, fed));
  return views(batch_->ids(), batch_->positions());
}

Status BatchProgram::enqueue(std::span<const int32_t> ids, std::span<const int32_t> positions,
                             const ops::ForwardContext& batch, std::span<const TensorView> more,
                             DrawnFeed* feed) {
  HEDDLE_RETURN_IF_ERROR(ops::check_batch(batch, std::ssize(ids)));
  const bool few = batch.few_rows_each() != 0;
  const bool whole = captures_.decode && few;
  const bool in_pieces = !few && std::ssize(ids) <= captures_.max_prompt_rows;
  BatchPadding::Step step{ids, positions, batch};
  if (whole) step = padding_.pad(step, program().largest);
  if (in_pieces) step = padding_.pad_rows(step, program().largest);
  const ops::Extents extents{.tokens = std::ssize(step.ids),
                             .logits = std::ssize(step.forward.logit_rows),
                             .sequences = step.forward.num_sequences()};
  HEDDLE_ASSIGN_OR_RETURN(const auto rows, upload(step, feed));
  inputs_.assign(rows.begin(), rows.end());
  const graph::Graph& graph = program().placed.graph;
  for (const TensorView& input : more) {
    const ops::TensorMeta& meta = graph.info(graph.inputs[inputs_.size()]).meta;
    inputs_.emplace_back(input.data, input.dtype, meta.shape_at(extents), input.row_stride);
  }
  real_ = {.tokens = std::ssize(ids),
           .logits = std::ssize(batch.logit_rows),
           .sequences = batch.num_sequences()};
  HEDDLE_RETURN_IF_ERROR(
      executor_.set_extents(extents, in_pieces ? extents.tokens - real_.tokens : 0));
  executor_.set_inputs(inputs_);
  StepGraphs::Shape shape{.rows = extents.tokens,
                          .input = more.empty() ? nullptr : more.front().data};
  ops::ForwardContext unpadded = batch;
  unpadded.batch = step.forward.batch;
  const auto launch = [&](const graph::Segment& segment) {
    const ops::ForwardContext& forward = segment.split ? unpadded : step.forward;
    if (captures_.debug && !step_graphs_.is_capturing()) {
      return graph::launch_checked(executor_, compute_->stream(), compute_->context(), forward,
                                   segment);
    }
    return executor_.launch(compute_->context(), forward, segment);
  };
  if (captures_.debug) HEDDLE_RETURN_IF_ERROR(executor_.poison(compute_->stream()));
  warmed_up_ = false;
  if (!whole && !in_pieces) return launch(executor_.whole());
  if (whole) {
    shape.sequences = extents.sequences;
    shape.logits = extents.logits;
    shape.page_table_width = step.forward.batch.page_table_width;
    shape.wants_all_rows = step.forward.wants_all_rows(extents.tokens);
  }
  // The first and second node of a captured graph start late. The first one therefore stays outside
  // and starts with the launch that uploads the batch: 3 us sooner in traces of an H200.
  const std::array first_and_others = executor_.first_and_others();
  const auto segments =
      whole ? std::span<const graph::Segment>(first_and_others) : program().segments;
  const Status status = step_graphs_.run(compute_->stream(), shape, step.forward, segments, launch);
  warmed_up_ = step_graphs_.warmed_up();
  return status;
}

MutableTensorView BatchProgram::output(size_t i) const {
  const graph::Graph& graph = program().placed.graph;
  const MutableTensorView view = executor_.output(i);
  return {view.data, view.dtype, graph.info(graph.outputs[i]).meta.shape_at(real_),
          view.row_stride};
}

}  // namespace heddle::runner
