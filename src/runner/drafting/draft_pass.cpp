// SPDX-License-Identifier: Apache-2.0
#include "runner/drafting/draft_pass.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/same_model.h"
#include "core/check.h"
#include "graph/builder.h"
#include "ops/embedding/embedding.h"
#include "runner/runner.h"

namespace heddle::runner {

Result<std::unique_ptr<DraftPass>> DraftPass::create(
    std::unique_ptr<const models::DraftModel> model, const DraftPassOptions& options,
    ForwardPass& target) {
  std::unique_ptr<DraftPass> pass(new DraftPass(std::move(model), options, target));
  HEDDLE_RETURN_IF_ERROR(target.device().make_current());
  HEDDLE_RETURN_IF_ERROR(pass->load());
  HEDDLE_RETURN_IF_ERROR(pass->compile());
  return pass;
}

Result<std::unique_ptr<const checkpoint::WeightSource>> DraftPass::open(
    const std::filesystem::path& folder, bool dummy_weights) const {
  HEDDLE_ASSIGN_OR_RETURN(auto source, open_weights(folder, dummy_weights));
  if (!source->names().empty() && !models::has_weights_of(*model_, *source)) {
    return invalid_argument(fmt::format(
        "{} has nothing that drafts: there is no tensor {}; choose another speculative algorithm",
        folder.string(), model_->weight_specs().front().alternatives.front().front().tensor.name));
  }
  return source;
}

checkpoint::LoadOptions DraftPass::load_options(const checkpoint::ModelConfig& config) const {
  const auto& quantization = config.quantization;
  return {.dtype = target_->dtype(),
          .ignored_prefixes = {""},  // all other weights belong to the model
          .num_threads = options_.num_threads,
          .quantization = options_.is_models_own && quantization ? &*quantization : nullptr,
          .rounding = options_.rounding};
}

Status DraftPass::load() {
  HEDDLE_ASSIGN_OR_RETURN(auto source, open(options_.weights_dir, options_.dummy_weights));
  HEDDLE_ASSIGN_OR_RETURN(target_ids_, model_->target_ids(*source));
  HEDDLE_ASSIGN_OR_RETURN(
      constants_, ModelConstants::load(
                      std::move(source), model_->weight_specs(), load_options(target_->config()),
                      [this](const auto& weights) { return model_->derive_weights(weights); },
                      target_->compute()));
  device::Device& device = target_->device();
  if (device.kind() == device::DeviceKind::kCpu || target_ids_.empty()) return {};
  const int64_t num_bytes = bytes_of(DType::kI32, std::ssize(target_ids_));
  HEDDLE_ASSIGN_OR_RETURN(device_target_ids_, device.allocate(num_bytes));
  HEDDLE_RETURN_IF_ERROR(
      target_->stream().copy(device_target_ids_.data(), target_ids_.data(), num_bytes));
  return target_->stream().synchronize();
}

Result<ModelConstants> DraftPass::read_constants(const std::filesystem::path& folder,
                                                 const checkpoint::ModelConfig& config,
                                                 bool dummy_weights,
                                                 const std::atomic<bool>* cancelled) const {
  HEDDLE_ASSIGN_OR_RETURN(auto source, open(folder, dummy_weights));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<TokenId> target_ids, model_->target_ids(*source));
  if (target_ids != target_ids_) {
    return checkpoint::differs_from_used(
        "the tokens that its network drafts differ from those in use");
  }
  checkpoint::LoadOptions options = load_options(config);
  options.cancelled = cancelled;
  HEDDLE_ASSIGN_OR_RETURN(
      ModelConstants constants,
      ModelConstants::load_beside(
          std::move(source), model_->weight_specs(), std::move(options),
          [this](const auto& weights) { return model_->derive_weights(weights); },
          target_->compute()));
  HEDDLE_RETURN_IF_ERROR(constants_.check_alike(constants));
  return constants;
}

Status DraftPass::compile() {
  const DType activations = target_->activations();
  const int64_t width = target_->config().hidden_size;
  const auto lookup = [this](std::string_view name) {
    const TensorView* own = constants_.find(name);
    return own != nullptr ? own : target_->find_constant(name);
  };
  const auto compiled = [&](size_t num_vectors, int64_t max_tokens, int64_t max_in_flight,
                            const auto& build) -> Result<std::unique_ptr<BatchProgram>> {
    graph::GraphBuilder g(ops::builtin_ops(), lookup, activations);
    const auto tokens = ops::SymbolicDim::of(ops::Symbol::kTokens);
    models::DraftInputs inputs{
        .ids = g.input("ids", ops::TensorMeta(DType::kI32, {tokens})),
        .positions = g.input("positions", ops::TensorMeta(DType::kI32, {tokens})),
        .vectors = {}};
    for (size_t i = 0; i < num_vectors; ++i) {
      inputs.vectors.push_back(
          g.input(fmt::format("vectors_{}", i),
                  ops::TensorMeta(activations, {tokens, ops::SymbolicDim::fixed(width)})));
    }
    const models::DraftOutputs outputs = build(g, inputs);
    if (outputs.logits.valid()) vocab_size_ = g.meta(outputs.logits).dims[1].offset;
    g.output(outputs.logits, "logits");
    g.output(outputs.vector, "vector");
    HEDDLE_ASSIGN_OR_RETURN(graph::Graph graph, g.finish());
    return BatchProgram::create(
        std::move(graph), target_->compute(),
        {.tokens = max_tokens, .logits = options_.max_rows, .sequences = max_tokens},
        options_.captures, max_in_flight);
  };
  HEDDLE_ASSIGN_OR_RETURN(
      first_,
      compiled(model_->hidden_states().size(), target_->max_step_tokens(), kMaxStepsInFlight,
               [this](auto& g, const auto& in) { return model_->build_first(g, in); }));
  HEDDLE_ASSIGN_OR_RETURN(
      next_, compiled(1, options_.max_rows, kMaxStepsInFlight * options_.max_steps,
                      [this](auto& g, const auto& in) { return model_->build_next(g, in); }));
  HEDDLE_ASSIGN_OR_RETURN(
      memory_, target_->device().allocate(bytes_of(activations, options_.max_rows * width)));
  vectors_ = {memory_.data(), activations, Shape{options_.max_rows, width}};
  return {};
}

Status DraftPass::enqueue_first(std::span<const int32_t> ids, std::span<const int32_t> positions,
                                const ops::ForwardContext& batch, DrawnFeed* feed) {
  target_vectors_.clear();
  for (size_t i = 0; i < model_->hidden_states().size(); ++i) {
    target_vectors_.push_back(target_->device_hidden_state(i));
    HEDDLE_CHECK_EQ(target_vectors_.back().shape[0], std::ssize(ids));
  }
  last_ = first_.get();
  return first_->enqueue(ids, positions, batch, target_vectors_, feed);
}

Status DraftPass::enqueue_next(std::span<const int32_t> ids, std::span<const int32_t> positions,
                               const ops::ForwardContext& batch, std::span<const int32_t> rows,
                               DrawnFeed* feed) {
  HEDDLE_CHECK(last_ != nullptr);
  HEDDLE_CHECK_EQ(rows.size(), ids.size());
  const TensorView given = last_->output(1);
  const int64_t row_bytes = bytes_of(vectors_.dtype, vectors_.shape[1]);
  // Rows of the source may be padded.
  const int64_t given_bytes = bytes_of(given.dtype, given.row_stride);
  // For each run of consecutive rows.
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (given_bytes == row_bytes && end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    HEDDLE_RETURN_IF_ERROR(target_->stream().copy(
        vectors_.as<std::byte>() + static_cast<int64_t>(i) * row_bytes,
        given.as<std::byte>() + rows[i] * given_bytes, static_cast<int64_t>(end - i) * row_bytes));
    i = end;
  }
  return enqueue_on_vectors(ids, positions, batch, feed);
}

Status DraftPass::enqueue_next(std::span<const int32_t> ids, std::span<const int32_t> positions,
                               const ops::ForwardContext& batch, const int32_t* rows,
                               DrawnFeed* feed) {
  HEDDLE_CHECK(last_ != nullptr);
  const int64_t num_rows = std::ssize(ids);
  HEDDLE_RETURN_IF_ERROR(
      ops::embedding(target_->context(),
                     {.ids = TensorView(rows, DType::kI32, Shape{num_rows}),
                      .table = last_->output(1),
                      .y = {vectors_.data, vectors_.dtype, Shape{num_rows, vectors_.shape[1]}}}));
  return enqueue_on_vectors(ids, positions, batch, feed);
}

Status DraftPass::enqueue_on_vectors(std::span<const int32_t> ids,
                                     std::span<const int32_t> positions,
                                     const ops::ForwardContext& batch, DrawnFeed* feed) {
  last_ = next_.get();
  const std::array<TensorView, 1> vectors = {
      TensorView(vectors_.data, vectors_.dtype, Shape{std::ssize(ids), vectors_.shape[1]})};
  return next_->enqueue(ids, positions, batch, vectors, feed);
}

int64_t DraftPass::arena_bytes() const {
  return first_->program().memory.arena_bytes + next_->program().memory.arena_bytes +
         memory_.size();
}

}  // namespace heddle::runner
