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
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<ComputeDevice> cpu,
                          ComputeDevice::open_cpu(options.num_threads, options.exact));
  return create(options, std::move(cpu));
}

Result<std::unique_ptr<ForwardPass>> ForwardPass::create(const ForwardOptions& options,
                                                         std::unique_ptr<ComputeDevice> device) {
  HEDDLE_CHECK_EQ(device->context().exact, options.exact);
  std::unique_ptr<ForwardPass> pass(new ForwardPass(std::move(device)));
  HEDDLE_RETURN_IF_ERROR(pass->device().make_current());
  HEDDLE_RETURN_IF_ERROR(pass->load(options));
  HEDDLE_RETURN_IF_ERROR(pass->place_derived());
  HEDDLE_RETURN_IF_ERROR(pass->compile(options));
  return pass;
}

Status ForwardPass::load(const ForwardOptions& options) {
  captures_ = options.capture && device().can_capture() && !compute_->shares_memory_with_host();
  HEDDLE_ASSIGN_OR_RETURN(config_, models::load_config(options.model_dir));
  model_ = models::create_model(config_);
  std::optional<DType> dtype = options.exact ? DType::kF32 : options.dtype;
  if (!dtype && options.dummy_weights) dtype = config_.dtype.value_or(DType::kBf16);
  const std::optional<DType> kv_dtype =
      choose_kv_dtype({options.kv_dtype, dtype == DType::kF32}, config_);
  HEDDLE_ASSIGN_OR_RETURN(auto source, open_weights(options));
  if (kv_dtype == DType::kF8E4M3) {
    HEDDLE_ASSIGN_OR_RETURN(kv_scales_, load_kv_scales(*source, cache_needs()));
  }
  HEDDLE_ASSIGN_OR_RETURN(
      weights_, checkpoint::load_weights(
                    std::move(source), model_->weight_specs(),
                    {.dtype = dtype,
                     .ignored_prefixes = model_->ignored_prefixes(),
                     .num_threads = options.num_threads,
                     .progress = options.on_load_progress,
                     .quantization = config_.quantization ? &*config_.quantization : nullptr,
                     .rounding = options.rounding,
                     .device = compute_->shares_memory_with_host() ? nullptr : &device()}));
  dtype_ = weights_.run_dtype();
  kv_dtype_ = kv_dtype.value_or(dtype_);
  activations_ = compute_->shares_memory_with_host() ? DType::kF32 : dtype_;
  return {};
}

Status ForwardPass::place_derived() {
  HEDDLE_ASSIGN_OR_RETURN(derived_.derived, model_->derive_weights(weights_));
  for (const auto& [name, tensor] : derived_.derived) {
    TensorView view = tensor.view();
    if (!compute_->shares_memory_with_host()) {
      HEDDLE_ASSIGN_OR_RETURN(device::Buffer buffer, device().allocate(view.num_bytes()));
      HEDDLE_RETURN_IF_ERROR(stream().copy(buffer.data(), view.data, view.num_bytes()));
      view.data = buffer.data();
      derived_.memory.push_back(std::move(buffer));
    }
    derived_.views.emplace(name, view);
  }
  return stream().synchronize();
}

const TensorView* ForwardPass::find_constant(std::string_view name) const {
  if (const TensorView* weight = weights_.find(name)) return weight;
  const auto found = derived_.views.find(name);
  return found == derived_.views.end() ? nullptr : &found->second;
}

Status ForwardPass::compile(const ForwardOptions& options) {
  const auto lookup = [this](std::string_view name) { return find_constant(name); };
  const graph::CompileOptions largest{.largest = {.tokens = options.max_step_tokens,
                                                  .logits = options.max_logit_rows,
                                                  .sequences = options.max_sequences > 0
                                                                   ? options.max_sequences
                                                                   : options.max_step_tokens}};
  const auto make_executor = [&](graph::GraphBuilder& g) -> Result<graph::Executor> {
    HEDDLE_ASSIGN_OR_RETURN(graph::Graph graph, g.finish());
    HEDDLE_ASSIGN_OR_RETURN(
        graph::Program program,
        graph::compile(std::move(graph), ops::builtin_ops(), context(), largest));
    return graph::Executor::create(std::move(program), device());
  };

  graph::GraphBuilder g(ops::builtin_ops(), lookup, activations_);
  const ops::TensorMeta per_token(DType::kI32, {ops::SymbolicDim::of(ops::Symbol::kTokens)});
  const models::ForwardInputs inputs{.ids = g.input("ids", per_token),
                                     .positions = g.input("positions", per_token)};
  const models::ForwardOutputs outputs = model_->build(g, inputs);
  g.output(outputs.logits, "logits");
  g.output(outputs.head_rows, "head_rows");
  if (options.collect_hidden_states) {
    hidden_states_.resize(outputs.hidden_states.size());
    for (size_t i = 0; i < outputs.hidden_states.size(); ++i) {
      g.output(outputs.hidden_states[i], fmt::format("hidden_{}", i));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(executor_, make_executor(g));
  if (!options.head_alone) return {};

  graph::GraphBuilder head(ops::builtin_ops(), lookup, activations_);
  const ops::TensorMeta rows(activations_, {ops::SymbolicDim::of(ops::Symbol::kLogits),
                                            ops::SymbolicDim::fixed(config_.hidden_size)});
  head.output(model_->build_head(head, head.input("head_rows", rows)), "logits");
  HEDDLE_ASSIGN_OR_RETURN(head_executor_, make_executor(head));
  return {};
}

Result<std::array<TensorView, 2>> ForwardPass::upload(std::span<const int32_t> ids,
                                                      std::span<const int32_t> positions,
                                                      ops::ForwardContext& forward) {
  const Shape rows{std::ssize(ids)};
  const auto views = [&](const int32_t* first, const int32_t* second) {
    return std::array{TensorView(first, DType::kI32, rows), TensorView(second, DType::kI32, rows)};
  };
  if (compute_->shares_memory_with_host()) return views(ids.data(), positions.data());
  const bool has_window_pages = !forward.window_page_table.empty();
  const int64_t width = ops::DeviceBatchUpload::width_of(forward);
  ops::DeviceBatchSizes& sizes = batch_sizes_;
  const bool fits = batch_ && forward.num_sequences() <= sizes.max_sequences &&
                    width <= sizes.max_pages_per_sequence &&
                    has_window_pages <= sizes.has_window_pages &&
                    std::ssize(forward.snapshots) <= sizes.max_snapshots;
  if (!fits) {
    sizes.max_rows = max_step_tokens();
    sizes.max_logit_rows = max_logit_rows();
    sizes.max_sequences = std::max(sizes.max_sequences, 2 * forward.num_sequences());
    sizes.max_pages_per_sequence = std::max(sizes.max_pages_per_sequence, width);
    sizes.has_window_pages |= has_window_pages;
    sizes.max_snapshots = std::max(sizes.max_snapshots, 2 * std::ssize(forward.snapshots) + 16);
    HEDDLE_RETURN_IF_ERROR(stream().synchronize());
    step_graphs_.clear();  // they read the block that goes
    batch_.reset();
    HEDDLE_ASSIGN_OR_RETURN(batch_, ops::DeviceBatchUpload::create(device(), sizes));
  }
  HEDDLE_RETURN_IF_ERROR(batch_->upload(stream(), ids, positions, forward));
  return views(batch_->ids(), batch_->positions());
}

Status ForwardPass::enqueue(std::span<const int32_t> ids, std::span<const int32_t> positions,
                            const ops::ForwardContext& batch) {
  const auto num_tokens = static_cast<int64_t>(ids.size());
  HEDDLE_RETURN_IF_ERROR(check_ids(ids, config_.vocab_size));
  HEDDLE_RETURN_IF_ERROR(ops::check_batch(batch, num_tokens));
  ops::ForwardContext forward = batch;
  HEDDLE_ASSIGN_OR_RETURN(const auto inputs, upload(ids, positions, forward));
  const auto num_logits = static_cast<int64_t>(forward.logit_rows.size());
  HEDDLE_RETURN_IF_ERROR(executor_->set_extents(
      {.tokens = num_tokens, .logits = num_logits, .sequences = forward.num_sequences()}));
  const auto launch = [&] { return executor_->launch(context(), forward, inputs); };
  if (captures_ && forward.few_rows_each() > 0) {
    HEDDLE_RETURN_IF_ERROR(step_graphs_.run(stream(),
                                            {.rows = num_tokens,
                                             .sequences = forward.num_sequences(),
                                             .logits = num_logits,
                                             .page_table_width = forward.batch.page_table_width},
                                            forward, launch));
  } else {
    HEDDLE_RETURN_IF_ERROR(launch());
  }
  return {};
}

Status ForwardPass::fetch_logits() { return logits_.fetch(device(), stream(), device_logits()); }

Status ForwardPass::run(std::span<const int32_t> ids, std::span<const int32_t> positions,
                        const ops::ForwardContext& batch) {
  HEDDLE_RETURN_IF_ERROR(enqueue(ids, positions, batch));
  HEDDLE_RETURN_IF_ERROR(fetch_logits());
  for (size_t i = 0; i < hidden_states_.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(hidden_states_[i].fetch(device(), stream(), executor_->output(i + 2)));
  }
  HEDDLE_RETURN_IF_ERROR(stream().synchronize());
  for (HostRows& state : hidden_states_) state.settle();
  return {};
}

Status ForwardPass::run_head(const TensorView& rows) {
  HEDDLE_CHECK(head_executor_.has_value());
  const std::array<TensorView, 1> inputs = {rows};
  HEDDLE_RETURN_IF_ERROR(head_executor_->run(context(), {}, {.logits = rows.shape[0]}, inputs));
  HEDDLE_RETURN_IF_ERROR(head_logits_.fetch(device(), stream(), head_executor_->output(0)));
  return stream().synchronize();
}

TensorView ForwardPass::hidden_state(size_t index) const {
  HEDDLE_CHECK_LT(index, num_hidden_states());
  return hidden_states_[index].view();
}

int64_t ForwardPass::arena_bytes() const {
  const int64_t head = head_executor_ ? head_executor_->program().memory.arena_bytes : 0;
  return program().memory.arena_bytes + head;
}

}  // namespace heddle::runner
