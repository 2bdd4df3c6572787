// SPDX-License-Identifier: Apache-2.0
#include "runner/program/forward_pass.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/adapter_linears.h"
#include "checkpoint/same_model.h"
#include "core/log.h"
#include "graph/builder.h"
#include "graph/write_check.h"
#include "models/rank_check.h"
#include "models/registry.h"
#include "runner/program/kv_storage.h"

namespace heddle::runner {

namespace {

constexpr size_t kFirstHiddenState = 2;  // index of the first hidden state among the outputs
constexpr int64_t kAxes = 3;             // axes of positions in programs that accept pictures

Status check_ids(std::span<const int32_t> ids, int64_t vocab_size) {
  const auto outside =
      std::ranges::find_if(ids, [vocab_size](int32_t id) { return id < 0 || id >= vocab_size; });
  if (outside == ids.end()) return {};
  return invalid_argument(fmt::format("row {} has token id {}, the vocabulary has {}",
                                      outside - ids.begin(), *outside, vocab_size));
}

}  // namespace

Result<std::unique_ptr<ForwardPass>> ForwardPass::create(const ForwardOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(
      std::unique_ptr<ComputeDevice> cpu,
      ComputeDevice::open_cpu(threads_of_rank(options.num_threads, options.num_ranks),
                              options.exact));
  return create(options, std::move(cpu));
}

Result<std::unique_ptr<ForwardPass>> ForwardPass::create(const ForwardOptions& options,
                                                         std::shared_ptr<ComputeDevice> device) {
  if (options.num_ranks == 1) return create_rank(options, std::move(device), 0);
  if (device->pool() == nullptr) {
    return unimplemented(
        fmt::format("--tp {}: ranks compute on the CPU alone so far, not on {}; use --device cpu, "
                    "or --tp 1",
                    options.num_ranks, device->device().name()));
  }
  auto group =
      std::make_shared<distributed::RankGroup>(options.num_ranks, options.collective_timeout);
  ForwardOptions of_rank = options;
  const auto loaded = std::make_shared<int64_t>(0);  // bytes of the ranks so far
  std::vector<std::unique_ptr<ForwardPass>> ranks;
  for (int64_t rank = 0; rank < options.num_ranks; ++rank) {
    std::shared_ptr<ComputeDevice> own = device;
    if (rank > 0) {
      const int threads = device->pool()->num_threads();
      HEDDLE_ASSIGN_OR_RETURN(
          own, ComputeDevice::open_cpu(threads, options.exact, static_cast<int>(rank) * threads));
    }
    if (options.on_load_progress) {
      // Ranks load one after another; those that follow are expected to load as much as this one.
      of_rank.on_load_progress = [loaded, report = options.on_load_progress, before = *loaded,
                                  left = options.num_ranks - rank](int64_t done, int64_t total) {
        *loaded = before + total;
        report(before + done, before + left * total);
      };
    }
    own->join(group, rank);
    HEDDLE_ASSIGN_OR_RETURN(ranks.emplace_back(), create_rank(of_rank, std::move(own), rank));
  }
  std::unique_ptr<ForwardPass> first = std::move(ranks.front());
  ranks.erase(ranks.begin());
  first->others_ = std::move(ranks);
  HEDDLE_ASSIGN_OR_RETURN(first->threads_, distributed::RankThreads::start(std::move(group)));
  return first;
}

Result<std::unique_ptr<ForwardPass>> ForwardPass::create_rank(const ForwardOptions& options,
                                                              std::shared_ptr<ComputeDevice> device,
                                                              int64_t rank) {
  HEDDLE_CHECK_EQ(device->context().exact, options.exact);
  std::unique_ptr<ForwardPass> pass(new ForwardPass(options, std::move(device), rank));
  HEDDLE_RETURN_IF_ERROR(pass->device().make_current());
  HEDDLE_RETURN_IF_ERROR(pass->load());
  HEDDLE_RETURN_IF_ERROR(pass->compile());
  return pass;
}

checkpoint::LoadOptions ForwardPass::load_options(const checkpoint::ModelConfig& config,
                                                  bool dummy_weights) const {
  std::optional<DType> dtype = options_.exact ? DType::kF32 : options_.dtype;
  if (!dtype && dummy_weights) dtype = config.dtype.value_or(DType::kBf16);
  return {.dtype = dtype,
          .ignored_prefixes = model_->ignored_prefixes(),
          .num_threads = options_.num_threads,
          .quantization = config.quantization ? &*config.quantization : nullptr,
          .rounding = options_.rounding};
}

Status ForwardPass::load() {
  HEDDLE_ASSIGN_OR_RETURN(config_, models::load_config(options_.model_dir));
  const bool speaks = rank_.index == 0;  // for all ranks
  for (const std::string& note : config_.notes) {
    if (speaks) log_warning(note);
  }
  model_ = options_.create_model(config_);
  HEDDLE_RETURN_IF_ERROR(
      models::check_ranks(*model_, rank_.ranks).with_context(fmt::format("--tp {}", num_ranks())));
  checkpoint::LoadOptions load_options = this->load_options(config_, options_.dummy_weights);
  load_options.progress = options_.on_load_progress;
  const std::optional<DType> kv_dtype =
      choose_kv_dtype({options_.kv_dtype, load_options.dtype == DType::kF32}, config_);
  HEDDLE_ASSIGN_OR_RETURN(auto source, open_weights(options_.model_dir, options_.dummy_weights));
  for (const std::string& note : source->notes()) {
    if (speaks) log_warning(note);
  }
  if (const std::string unread = source->unread_files(); speaks && !unread.empty()) {
    log_info(unread);
  }
  if (kv_dtype == DType::kF8E4M3) {
    HEDDLE_ASSIGN_OR_RETURN(kv_scales_, load_kv_scales(*source, cache_needs()));
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<checkpoint::WeightSpec> specs, own_weight_specs());
  HEDDLE_ASSIGN_OR_RETURN(
      constants_,
      ModelConstants::load(
          std::move(source), specs, std::move(load_options),
          [this](const auto& weights) { return model_->derive_weights(weights); }, *compute_));
  dtype_ = constants_.weights().run_dtype();
  kv_dtype_ = kv_dtype.value_or(dtype_);
  activations_ = compute_->shares_memory_with_host() ? DType::kF32 : dtype_;
  return {};
}

Result<ModelConstants> ForwardPass::read_constants(const std::filesystem::path& model_dir,
                                                   const checkpoint::ModelConfig& config,
                                                   bool dummy_weights,
                                                   const std::atomic<bool>* cancelled) const {
  checkpoint::LoadOptions load_options = this->load_options(config, dummy_weights);
  load_options.cancelled = cancelled;
  HEDDLE_ASSIGN_OR_RETURN(auto source, open_weights(model_dir, dummy_weights));
  for (const std::string& note : source->notes()) {
    if (rank_.index == 0) log_warning(note);
  }
  if (kv_dtype_ == DType::kF8E4M3) {
    HEDDLE_ASSIGN_OR_RETURN(const auto scales, load_kv_scales(*source, cache_needs()));
    if (scales != kv_scales_) {
      return checkpoint::differs_from_used(
          "the scales of the FP8 KV cache differ from those in use");
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<checkpoint::WeightSpec> specs, own_weight_specs());
  HEDDLE_ASSIGN_OR_RETURN(
      ModelConstants constants,
      ModelConstants::load_beside(
          std::move(source), specs, std::move(load_options),
          [this](const auto& weights) { return model_->derive_weights(weights); }, *compute_));
  HEDDLE_RETURN_IF_ERROR(constants_.check_alike(constants));
  return constants;
}

Status ForwardPass::compile() {
  HEDDLE_ASSIGN_OR_RETURN(Programs programs, compile_with([this](std::string_view name) {
                            return find_constant(name);
                          }));
  main_ = std::move(programs.model);
  head_executor_ = std::move(programs.head);
  last_ = main_.get();
  return options_.num_adapter_slots > 0 ? make_adapters() : ok_status();
}

// Makes the adapter slots and the programs that read them.
Status ForwardPass::make_adapters() {
  constexpr std::string_view kMergeInstead =
      "merge the adapter into the model: heddle merge MODEL ADAPTER OUT_DIR";
  if (num_ranks() > 1) {
    return unimplemented(
        fmt::format("adapters are not divided among ranks: leave out --tp {}, or {}", num_ranks(),
                    kMergeInstead));
  }
  if (!compute_->shares_memory_with_host()) {
    return unimplemented(
        fmt::format("adapters are added on the CPU only, not on {}: use --device cpu, or {}",
                    device().name(), kMergeInstead));
  }
  adapters_ = std::make_unique<AdapterPool>(
      AdapterPool::Sizes{.num_slots = options_.num_adapter_slots,
                         .max_rank = options_.max_adapter_rank,
                         .max_rows = options_.max_step_tokens,
                         .max_logit_rows = options_.max_logit_rows,
                         .max_bytes = device().available_memory_bytes()},
      model_->weight_specs());
  Result<Programs> programs = compile_with([this](std::string_view name) {
    const TensorView* const constant = find_constant(name);
    return constant == nullptr ? adapters_->find(name) : constant;
  });
  HEDDLE_RETURN_IF_ERROR(adapters_->status());
  HEDDLE_ASSIGN_OR_RETURN(with_adapters_, std::move(programs));
  return {};
}

Result<Adapter> ForwardPass::load_adapter(int32_t slot, const std::filesystem::path& folder) {
  HEDDLE_CHECK(adapters_ != nullptr);
  HEDDLE_ASSIGN_OR_RETURN(const auto files, checkpoint::AdapterFiles::open(folder));
  for (const std::string& note : files.notes()) log_warning(note);
  HEDDLE_ASSIGN_OR_RETURN(const auto base,
                          open_weights(options_.model_dir, options_.dummy_weights));
  const std::vector<checkpoint::WeightSpec> specs = model_->weight_specs();
  const auto linears = checkpoint::adapter_linears(files, specs, *base);
  Status status = linears.ok() ? adapters_->load(slot, *linears) : linears.status();
  if (!status.ok()) return status.with_context(folder.string());
  return Adapter{.slot = slot, .rank = files.highest_rank(), .content_hash = files.content_hash()};
}

Result<ForwardPass::Programs> ForwardPass::compile_with(const graph::WeightLookup& lookup) {
  const ops::Extents largest{.tokens = options_.max_step_tokens,
                             .logits = options_.max_logit_rows,
                             .sequences = 1 +  // one more sequence for padding
                                          (options_.max_sequences > 0 ? options_.max_sequences
                                                                      : options_.max_step_tokens)};

  Programs programs;
  graph::GraphBuilder g(ops::builtin_ops(), lookup, activations_, rank_);
  const ops::TensorMeta per_token(DType::kI32, {ops::SymbolicDim::of(ops::Symbol::kTokens)});
  models::ForwardInputs inputs{.ids = g.input("ids", per_token),
                               .positions = g.input("positions", per_token)};
  if (options_.feature_width > 0) {
    HEDDLE_RETURN_IF_ERROR(check_pictures());
    staged_features_ = Tensor({options_.max_step_tokens, options_.feature_width}, DType::kF32);
    const ops::SymbolicDim T = ops::SymbolicDim::of(ops::Symbol::kTokens);
    inputs.pictures = {
        .positions = g.input("axis_positions", {DType::kI32, {T, ops::SymbolicDim::fixed(kAxes)}}),
        .rows = g.input("picture_rows", per_token),
        .features = g.input("features",
                            {activations_, {T, ops::SymbolicDim::fixed(options_.feature_width)}})};
  }
  const models::ForwardOutputs outputs = model_->build(g, inputs);
  g.output(outputs.logits, "logits");
  g.output(outputs.head_rows, "head_rows");
  std::vector<int64_t> layers = options_.hidden_states;
  if (options_.collect_hidden_states) {
    layers.resize(outputs.hidden_states.size());
    std::iota(layers.begin(), layers.end(), 0);
    hidden_states_.resize(layers.size());
  }
  for (const int64_t layer : layers) {
    HEDDLE_CHECK_LT(layer, std::ssize(outputs.hidden_states));
    g.output(outputs.hidden_states[static_cast<size_t>(layer)], fmt::format("hidden_{}", layer));
  }
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph graph, g.finish());
  HEDDLE_ASSIGN_OR_RETURN(programs.model, BatchProgram::create(std::move(graph), *compute_, largest,
                                                               options_.captures));
  if (!options_.head_alone) return programs;

  graph::GraphBuilder head(ops::builtin_ops(), lookup, activations_, rank_);
  const ops::TensorMeta rows(activations_, {ops::SymbolicDim::of(ops::Symbol::kLogits),
                                            ops::SymbolicDim::fixed(config_.hidden_size)});
  head.output(model_->build_head(head, head.input("head_rows", rows)), "logits");
  HEDDLE_ASSIGN_OR_RETURN(graph::Graph head_graph, head.finish());
  ops::Extents head_extents = largest;  // one row per sequence, whatever other rows have logits in
                                        // a step
  head_extents.logits = std::min(largest.logits, largest.sequences);
  HEDDLE_ASSIGN_OR_RETURN(graph::Program program,
                          graph::compile(std::move(head_graph), ops::builtin_ops(), context(),
                                         {.largest = head_extents}));
  HEDDLE_ASSIGN_OR_RETURN(programs.head, graph::Executor::create(std::move(program), device()));
  if (options_.captures.debug) {
    log_info("the head's compiled " + graph::dump(programs.head->program()));
  }
  return programs;
}

Status ForwardPass::check_pictures() const {
  if (!compute_->shares_memory_with_host()) {
    return unimplemented("pictures are served on the CPU only; choose --device cpu");
  }
  if (options_.feature_width % config_.hidden_size != 0) {
    return invalid_argument(fmt::format("features of {} columns do not fit a model {} wide",
                                        options_.feature_width, config_.hidden_size));
  }
  const int64_t pairs = checkpoint::rotary_width(config_.rope, config_.head_dim) / 2;
  return checkpoint::rope_axes(config_.rope, pairs).status();
}

Result<std::vector<TensorView>> ForwardPass::picture_views(std::span<const int32_t> positions,
                                                           const StepPictures* pictures) {
  const int64_t width = options_.feature_width, T = std::ssize(positions);
  if (width == 0) {
    if (pictures == nullptr) return std::vector<TensorView>();
    return invalid_argument("a step with pictures, but the program accepts text only");
  }
  if (T > options_.max_step_tokens) {
    return invalid_argument(
        fmt::format("a step of {} rows; at most {}", T, options_.max_step_tokens));
  }
  picture_rows_.assign(static_cast<size_t>(T), -1);
  std::span<const int32_t> axis_positions = text_positions_;
  if (pictures == nullptr) {
    text_positions_.clear();
    for (const int32_t position : positions)
      text_positions_.insert(text_positions_.end(), kAxes, position);
    axis_positions = text_positions_;
  } else {
    HEDDLE_CHECK_EQ(std::ssize(pictures->positions), kAxes * T);
    HEDDLE_CHECK_EQ(std::ssize(pictures->features), T);
    axis_positions = pictures->positions;
    stage_features(pictures->features);
  }
  return std::vector<TensorView>{
      TensorView(axis_positions.data(), DType::kI32, Shape{T, kAxes}),
      TensorView(picture_rows_.data(), DType::kI32, Shape{T}),
      TensorView(staged_features_.view().data, DType::kF32, Shape{T, width})};
}

void ForwardPass::stage_features(std::span<const float* const> features) {
  const int64_t width = options_.feature_width;
  int32_t row = 0;
  for (size_t t = 0; t < features.size(); ++t) {
    if (features[t] == nullptr) continue;
    std::copy_n(features[t], width, staged_features_.view().row<float>(row));
    picture_rows_[t] = row++;
  }
}

Status ForwardPass::enqueue(std::span<const int32_t> ids, std::span<const int32_t> positions,
                            const ops::ForwardContext& batch, DrawnFeed* feed,
                            const StepExtras& extras) {
  HEDDLE_RETURN_IF_ERROR(check_ids(ids, config_.vocab_size));
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<TensorView> views,
                          picture_views(positions, extras.pictures));
  last_ = main_.get();
  if (!extras.adapters.empty()) {
    HEDDLE_CHECK(adapters_ != nullptr);
    HEDDLE_RETURN_IF_ERROR(adapters_->lay_out(batch, extras.adapters));
    last_ = with_adapters_.model.get();
  }
  return last_->enqueue(ids, positions, batch, views, feed);
}

Status ForwardPass::run(std::span<const int32_t> ids, std::span<const int32_t> positions,
                        const ops::ForwardContext& batch, const StepExtras& extras) {
  HEDDLE_RETURN_IF_ERROR(enqueue(ids, positions, batch, nullptr, extras));
  HEDDLE_RETURN_IF_ERROR(logits_.fetch(device(), stream(), device_logits()));
  for (size_t i = 0; i < hidden_states_.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(
        hidden_states_[i].fetch(device(), stream(), last_->output(i + kFirstHiddenState)));
  }
  HEDDLE_RETURN_IF_ERROR(stream().synchronize());
  for (HostRows& state : hidden_states_) state.settle();
  return {};
}

Status ForwardPass::run_head(const TensorView& rows, std::span<const int32_t> adapters) {
  HEDDLE_CHECK(head_executor_.has_value());
  graph::Executor* head = &*head_executor_;
  if (std::ranges::any_of(adapters, [](int32_t slot) { return slot >= 0; })) {
    HEDDLE_CHECK(adapters_ != nullptr);
    adapters_->lay_out_head(adapters);
    head = &*with_adapters_.head;
  }
  const std::array<TensorView, 1> inputs = {rows};
  HEDDLE_RETURN_IF_ERROR(head->set_extents({.logits = rows.shape[0]}));
  head->set_inputs(inputs);
  const graph::Segment all = head->whole();
  if (options_.captures.debug) {
    HEDDLE_RETURN_IF_ERROR(head->poison(stream()));
    HEDDLE_RETURN_IF_ERROR(graph::launch_checked(*head, stream(), context(), {}, all));
  } else {
    HEDDLE_RETURN_IF_ERROR(head->launch(context(), {}, all));
  }
  HEDDLE_RETURN_IF_ERROR(head_logits_.fetch(device(), stream(), head->output(0)));
  return stream().synchronize();
}

MutableTensorView ForwardPass::device_hidden_state(size_t index) const {
  return last_->output(index + kFirstHiddenState);
}

TensorView ForwardPass::hidden_state(size_t index) const {
  HEDDLE_CHECK_LT(index, num_hidden_states());
  return hidden_states_[index].view();
}

int64_t ForwardPass::num_parameters() const {
  if (num_ranks() == 1) return weights().num_parameters();
  int64_t sum = 0;
  for (const checkpoint::WeightSpec& spec : model_->weight_specs()) {
    sum += spec.shape.num_elements();
  }
  return sum;
}

int64_t ForwardPass::arena_bytes() const {
  int64_t sum = program().memory.arena_bytes;
  const auto add_head = [&](const std::optional<graph::Executor>& head) {
    if (head) sum += head->program().memory.arena_bytes;
  };
  add_head(head_executor_);
  if (with_adapters_.model != nullptr) {
    sum += with_adapters_.model->program().memory.arena_bytes;
  }
  add_head(with_adapters_.head);
  return sum;
}

}  // namespace heddle::runner
