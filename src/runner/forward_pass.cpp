// SPDX-License-Identifier: Apache-2.0
#include "runner/forward_pass.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/dummy_weights.h"
#include "graph/builder.h"
#include "models/registry.h"
#include "runner/cache_plan.h"

namespace heddle::runner {

namespace {

constexpr uint64_t kDummySeed = 0;

Result<std::unique_ptr<const checkpoint::WeightSource>> open_weights(
    const ForwardOptions& options) {
  if (options.dummy_weights) {
    return std::unique_ptr<const checkpoint::WeightSource>(
        std::make_unique<checkpoint::DummyWeights>(kDummySeed));
  }
  HEDDLE_ASSIGN_OR_RETURN(auto files, checkpoint::CheckpointFiles::open(options.model_dir));
  return std::unique_ptr<const checkpoint::WeightSource>(
      std::make_unique<checkpoint::CheckpointFiles>(std::move(files)));
}

Status check_ids(std::span<const int32_t> ids, int64_t vocab_size) {
  const auto outside =
      std::ranges::find_if(ids, [vocab_size](int32_t id) { return id < 0 || id >= vocab_size; });
  if (outside == ids.end()) return {};
  return invalid_argument(fmt::format("row {} has token id {}, the vocabulary has {}",
                                      outside - ids.begin(), *outside, vocab_size));
}

}  // namespace

Result<std::unique_ptr<ForwardPass>> ForwardPass::create(const ForwardOptions& options) {
  std::unique_ptr<ForwardPass> pass(new ForwardPass(options.num_threads, options.exact));
  HEDDLE_ASSIGN_OR_RETURN(pass->stream_, pass->device_.create_stream());
  HEDDLE_ASSIGN_OR_RETURN(pass->config_, models::load_config(options.model_dir));
  pass->model_ = models::create_model(pass->config_);

  std::optional<DType> dtype = options.exact ? DType::kF32 : options.dtype;
  if (!dtype && options.dummy_weights) dtype = pass->config_.dtype.value_or(DType::kBf16);
  const std::optional<DType> kv_dtype =
      choose_kv_dtype({options.kv_dtype, dtype == DType::kF32}, pass->config_);
  HEDDLE_ASSIGN_OR_RETURN(auto source, open_weights(options));
  if (kv_dtype == DType::kF8E4M3) {
    HEDDLE_ASSIGN_OR_RETURN(pass->kv_scales_, load_kv_scales(*source, pass->cache_needs()));
  }
  HEDDLE_ASSIGN_OR_RETURN(
      pass->weights_,
      checkpoint::load_weights(
          std::move(source), pass->model_->weight_specs(),
          {.dtype = dtype,
           .ignored_prefixes = pass->model_->ignored_prefixes(),
           .num_threads = options.num_threads,
           .progress = options.on_load_progress,
           .quantization = pass->config_.quantization ? &*pass->config_.quantization : nullptr,
           .rounding = options.rounding}));
  pass->dtype_ = pass->weights_.run_dtype();
  pass->kv_dtype_ = kv_dtype.value_or(pass->dtype_);
  HEDDLE_ASSIGN_OR_RETURN(pass->derived_, pass->model_->derive_weights(pass->weights_));

  // Views of derived tensors, by name; they are few.
  std::map<std::string, TensorView, std::less<>> derived_views;
  for (const auto& [name, tensor] : pass->derived_) derived_views.emplace(name, tensor.view());
  const auto lookup = [&](std::string_view name) -> const TensorView* {
    if (const TensorView* weight = pass->weights_.find(name)) return weight;
    const auto found = derived_views.find(name);
    return found == derived_views.end() ? nullptr : &found->second;
  };

  const graph::CompileOptions largest{
      .largest = {.tokens = options.max_step_tokens, .logits = options.max_logit_rows}};
  const auto make_executor = [&](graph::GraphBuilder& g) -> Result<graph::Executor> {
    HEDDLE_ASSIGN_OR_RETURN(graph::Graph graph, g.finish());
    HEDDLE_ASSIGN_OR_RETURN(
        graph::Program program,
        graph::compile(std::move(graph), ops::builtin_ops(), pass->context_, largest));
    return graph::Executor::create(std::move(program), pass->device_);
  };

  graph::GraphBuilder g(ops::builtin_ops(), lookup);
  const ops::TensorMeta per_token(DType::kI32, {ops::SymbolicDim::of(ops::Symbol::kTokens)});
  const models::ForwardInputs inputs{.ids = g.input("ids", per_token),
                                     .positions = g.input("positions", per_token)};
  const models::ForwardOutputs outputs = pass->model_->build(g, inputs);
  g.output(outputs.logits, "logits");
  g.output(outputs.head_rows, "head_rows");
  if (options.collect_hidden_states) {
    pass->num_hidden_states_ = outputs.hidden_states.size();
    for (size_t i = 0; i < outputs.hidden_states.size(); ++i) {
      g.output(outputs.hidden_states[i], fmt::format("hidden_{}", i));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(pass->executor_, make_executor(g));

  if (options.head_alone) {
    graph::GraphBuilder head(ops::builtin_ops(), lookup);
    const ops::TensorMeta rows(DType::kF32, {ops::SymbolicDim::of(ops::Symbol::kLogits),
                                             ops::SymbolicDim::fixed(pass->config_.hidden_size)});
    head.output(pass->model_->build_head(head, head.input("head_rows", rows)), "logits");
    HEDDLE_ASSIGN_OR_RETURN(pass->head_executor_, make_executor(head));
  }
  return pass;
}

Status ForwardPass::run(std::span<const int32_t> ids, std::span<const int32_t> positions,
                        const ops::ForwardContext& forward) {
  const auto num_tokens = static_cast<int64_t>(ids.size());
  HEDDLE_RETURN_IF_ERROR(check_ids(ids, config_.vocab_size));
  HEDDLE_RETURN_IF_ERROR(ops::check_batch(forward, num_tokens));
  const Shape rows{num_tokens};
  const std::array<TensorView, 2> inputs = {TensorView(ids.data(), DType::kI32, rows),
                                            TensorView(positions.data(), DType::kI32, rows)};
  HEDDLE_RETURN_IF_ERROR(executor_->run(
      context_, forward,
      {.tokens = num_tokens, .logits = static_cast<int64_t>(forward.logit_rows.size())}, inputs));
  return stream_->synchronize();
}

Status ForwardPass::run_head(const TensorView& rows) {
  HEDDLE_CHECK(head_executor_.has_value());
  const std::array<TensorView, 1> inputs = {rows};
  HEDDLE_RETURN_IF_ERROR(head_executor_->run(context_, {}, {.logits = rows.shape[0]}, inputs));
  return stream_->synchronize();
}

MutableTensorView ForwardPass::logits() const { return executor_->output(0); }

TensorView ForwardPass::head_rows() const { return executor_->output(1); }

MutableTensorView ForwardPass::head_logits() const {
  HEDDLE_CHECK(head_executor_.has_value());
  return head_executor_->output(0);
}

TensorView ForwardPass::hidden_state(size_t index) const {
  HEDDLE_CHECK_LT(index, num_hidden_states_);
  return executor_->output(index + 2);
}

int64_t ForwardPass::arena_bytes() const {
  const int64_t head = head_executor_ ? head_executor_->program().memory.arena_bytes : 0;
  return program().memory.arena_bytes + head;
}

}  // namespace heddle::runner
