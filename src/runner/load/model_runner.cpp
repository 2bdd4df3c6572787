// SPDX-License-Identifier: Apache-2.0
#include "runner/load/model_runner.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cache/page_allocator.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/same_model.h"
#include "core/check.h"
#include "core/log.h"
#include "models/registry.h"
#include "ops/simd/this_cpu.h"
#include "runner/drafting/draft_pass.h"
#include "runner/load/attention_backend.h"
#include "runner/load/cache_plan.h"
#include "runner/load/choose_device.h"
#include "runner/load/choose_drafts.h"
#include "runner/load/number_formats.h"
#include "runner/program/forward_pass.h"
#include "runner/step/device_steps.h"
#include "runner/step/output_counts.h"
#include "runner/step/pools.h"
#include "runner/step/step_executor.h"
#include "runner/step/step_thread.h"
#include "speculative/draft_limits.h"

namespace heddle::runner {

namespace {

constexpr int32_t kMaxChunkTokens = 65536;
constexpr int64_t kMostVocabularyPadding = 256;

class NewModelWeights final : public NewWeights {
 public:
  ModelConstants model;
  std::optional<ModelConstants> draft;  // of a network whose weights are in the model's folder
};

class ModelRunner final : public Runner {
 public:
  static Result<std::unique_ptr<Runner>> create(std::unique_ptr<ForwardPass> pass, Pools pools,
                                                const PoolSizes& sizes, int64_t context_length,
                                                StepDrafts drafts) {
    std::unique_ptr<ModelRunner> runner(new ModelRunner(std::move(pass), std::move(pools), sizes,
                                                        context_length, std::move(drafts)));
    HEDDLE_RETURN_IF_ERROR(runner->executor_.prepare());
    if (runner->pass_->device().kind() != device::DeviceKind::kCpu) {
      runner->device_steps_.emplace(runner->executor_);
      return std::unique_ptr<Runner>(std::move(runner));
    }
    HEDDLE_ASSIGN_OR_RETURN(runner->thread_, StepThread::start([executor = &runner->executor_](
                                                                   const request::BatchPlan& plan,
                                                                   request::StepOutput& output) {
                              return executor->run(plan, output);
                            }));
    return std::unique_ptr<Runner>(std::move(runner));
  }

  [[nodiscard]] const PoolSizes& pool_sizes() const override { return sizes_; }

  Status submit(const request::BatchPlan& plan) override {
    if (device_steps_) {
      device_steps_->submit(plan);
    } else {
      thread_->submit(plan);
    }
    return {};
  }

  Result<request::StepOutput> wait() override {
    return device_steps_ ? device_steps_->wait() : thread_->wait();
  }

  [[nodiscard]] Result<std::unique_ptr<NewWeights>> read_weights(
      const WeightFolder& folder, const std::atomic<bool>& cancelled) const override {
    HEDDLE_ASSIGN_OR_RETURN(const checkpoint::ModelConfig config,
                            models::load_config(folder.model_dir));
    if (const Status status = checkpoint::check_same_model(pass_->config(), config); !status.ok()) {
      return status.with_context((folder.model_dir / "config.json").string());
    }
    auto weights = std::make_unique<NewModelWeights>();
    HEDDLE_ASSIGN_OR_RETURN(
        weights->model, pass_->read_constants(folder.model_dir, config, folder.dummy, &cancelled));
    if (draft_pass_ != nullptr && draft_pass_->in_models_folder()) {
      HEDDLE_ASSIGN_OR_RETURN(
          weights->draft,
          draft_pass_->read_constants(folder.model_dir, config, folder.dummy, &cancelled));
    }
    return std::unique_ptr<NewWeights>(std::move(weights));
  }

  Status use_weights(const NewWeights& weights) override {
    const auto& own = static_cast<const NewModelWeights&>(weights);
    HEDDLE_RETURN_IF_ERROR(pass_->device().make_current());
    HEDDLE_RETURN_IF_ERROR(pass_->use_constants(own.model));
    return own.draft ? draft_pass_->use_constants(*own.draft) : ok_status();
  }

  void recycle(request::StepOutput output) override {
    if (device_steps_) {
      device_steps_->recycle(std::move(output));
    } else {
      thread_->recycle(std::move(output));
    }
  }

 private:
  ModelRunner(std::unique_ptr<ForwardPass> pass, Pools pools, const PoolSizes& sizes,
              int64_t context_length, StepDrafts drafts)
      : sizes_(sizes),
        pass_(std::move(pass)),
        draft_pass_(drafts.pass.get()),
        executor_(*pass_, std::move(pools), sizes, context_length, LogitRows::kSampled,
                  std::move(drafts)) {}

  PoolSizes sizes_;
  std::unique_ptr<ForwardPass> pass_;  // the thread's where there is one, as is the executor
  DraftPass* draft_pass_;              // the executor's; null: there is none
  StepExecutor executor_;
  std::unique_ptr<StepThread> thread_;       // of the CPU; ends before what it works on
  std::optional<DeviceSteps> device_steps_;  // of other devices
};

SamplingParams default_sampling(const checkpoint::GenerationConfig& config) {
  SamplingParams params;
  if (config.do_sample.has_value() && !*config.do_sample) {
    params.temperature = 0;
    return params;
  }
  if (config.temperature) params.temperature = static_cast<float>(*config.temperature);
  if (config.top_p) params.top_p = static_cast<float>(*config.top_p);
  if (config.top_k && *config.top_k > 0) params.top_k = static_cast<int32_t>(*config.top_k);
  if (config.min_p) params.min_p = static_cast<float>(*config.min_p);
  if (config.repetition_penalty) {
    params.repetition_penalty = static_cast<float>(*config.repetition_penalty);
  }
  return params;
}

Status check_options(const EngineOptions& options) {
  const std::optional<DType> dtype = dtype_of(options.dtype);
  if (options.exact && dtype.value_or(DType::kF32) != DType::kF32) {
    return invalid_argument(
        fmt::format("exact mode computes in float32; dtype is \"{}\"", to_string(options.dtype)));
  }
  if (!cache::valid_page_size(options.page_size)) {
    return invalid_argument(
        fmt::format("page_size {} is not a power of two from 1 to 128", options.page_size));
  }
  if (options.num_threads < 0 || options.num_threads > 1024) {
    return invalid_argument(fmt::format("threads {} is not within 0 to 1024", options.num_threads));
  }
  if (options.chunked_prefill_tokens &&
      (*options.chunked_prefill_tokens < 1 || *options.chunked_prefill_tokens > kMaxChunkTokens)) {
    return invalid_argument(fmt::format("chunked_prefill_tokens {} is not within 1 to {}",
                                        *options.chunked_prefill_tokens, kMaxChunkTokens));
  }
  if (options.max_running_requests < 0 || options.max_running_requests > cache::kMaxRunningLimit) {
    return invalid_argument(fmt::format("max_running_requests {} is not within 0 to {}",
                                        options.max_running_requests, cache::kMaxRunningLimit));
  }
  if (const int32_t tokens = options.speculative.num_draft_tokens;
      tokens != 0 && (tokens < 2 || tokens > speculative::kMostDraftRows)) {
    return invalid_argument(fmt::format("num_draft_tokens {} is not 0 or within 2 to {}", tokens,
                                        speculative::kMostDraftRows));
  }
  HEDDLE_RETURN_IF_ERROR(speculative::check_tree_shape(options.speculative));
  if (options.memory_fraction && !(*options.memory_fraction > 0 && *options.memory_fraction <= 1)) {
    return invalid_argument(
        fmt::format("memory_fraction {} is not within (0, 1]", *options.memory_fraction));
  }
  if (const auto& share = options.static_memory_fraction; share && !(*share > 0 && *share <= 1)) {
    return invalid_argument(fmt::format("static_memory_fraction {} is not within (0, 1]", *share));
  }
  if (options.memory_fraction && options.static_memory_fraction) {
    return invalid_argument(
        "memory_fraction and static_memory_fraction both size the pools; give one");
  }
  return {};
}

EngineOptions settled(EngineOptions options, ForwardPass& pass, const MemoryPlan& plan,
                      int64_t context_length) {
  const device::DeviceKind kind = pass.device().kind();
  const DeviceDefaults defaults = defaults_for(kind);
  if (options.device == "auto") options.device = kind == device::DeviceKind::kCpu ? "cpu" : "cuda";
  options.chunked_prefill_tokens =
      options.chunked_prefill_tokens.value_or(defaults.chunked_prefill_tokens);
  if (!options.static_memory_fraction) {
    options.memory_fraction = options.memory_fraction.value_or(defaults.memory_fraction);
  }
  if (options.load_format == LoadFormat::kAuto) options.load_format = LoadFormat::kSafetensors;
  options.dtype = run_dtype(pass.dtype());
  options.kv_cache_dtype = kv_cache_dtype(pass.kv_dtype());
  if (const device::ThreadPool* pool = pass.compute().pool()) {
    options.num_threads = pool->num_threads();
  }
  options.context_length = context_length;
  options.max_running_requests = plan.max_running_requests;
  options.max_total_tokens = plan.kv_tokens;
  if (options.speculative.num_steps > 0) {
    options.speculative.num_draft_tokens = speculative::num_draft_tokens(options.speculative);
  }
  options.on_load_progress = nullptr;
  return options;
}

std::string describe(const device::Device& device) {
  if (device.kind() != device::DeviceKind::kCpu) return device.name();
  return fmt::format("{}, {}", device.name(), ops::simd_target_name());
}

// The small model of kStandalone, beside the model that it drafts for. Vocabularies of one
// tokenizer are padded differently. Error: also for another vocabulary.
Result<std::unique_ptr<ForwardPass>> load_small_model(const EngineOptions& options,
                                                      const ForwardOptions& as_target,
                                                      ForwardPass& target) {
  const std::filesystem::path& folder = options.speculative.draft_model_dir;
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::ModelConfig config, models::load_config(folder));
  const int64_t vocab_size = target.config().vocab_size;
  if (std::abs(config.vocab_size - vocab_size) > kMostVocabularyPadding) {
    return invalid_argument(
        fmt::format("it has a vocabulary of {} tokens, the model one of {}; a model that drafts "
                    "for another has the same tokenizer",
                    config.vocab_size, vocab_size));
  }
  ForwardOptions small = as_target;
  small.model_dir = folder;
  small.dtype = target.dtype();
  small.kv_dtype = target.kv_dtype();
  small.max_step_tokens += as_target.max_sequences;  // it reads what is drawn as well
  small.hidden_states = {};
  small.head_alone = false;
  small.on_load_progress = nullptr;
  return ForwardPass::create(small, target.shared_compute());
}

// Takes back what the runner chose. Error: `failed`, where it was asked for by name.
Status leave_out_drafts(Status failed, const EngineOptions& asked, ChosenDrafts& chosen) {
  if (asked.speculative.algorithm != DraftAlgorithm::kAuto ||
      chosen.algorithm == DraftAlgorithm::kNone) {
    return failed;
  }
  chosen = {.algorithm = DraftAlgorithm::kNone, .model = nullptr, .reason = failed.message()};
  return {};
}

// Free memory of a GPU; 0 on the CPU, whose pools commit theirs later.
int64_t free_bytes(const device::Device& device) {
  return device.kind() == device::DeviceKind::kCpu ? 0 : device.available_memory_bytes();
}

Result<LoadedModel> load_on(const EngineOptions& asked, ChosenDevice chosen) {
  const int64_t free_before = free_bytes(chosen.compute->device());
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::ModelConfig stored,
                          models::load_config(asked.model_dir));
  HEDDLE_ASSIGN_OR_RETURN(ChosenDrafts drafts, choose_drafts(asked, stored));
  EngineOptions options = asked;
  options.speculative.algorithm = drafts.algorithm;
  const DeviceDefaults defaults = defaults_for(chosen.compute->device().kind());
  const int32_t max_rows = options.max_running_requests > 0 ? options.max_running_requests
                                                            : defaults.max_running_requests;
  // Every running sequence may decode in a step that also prefills: the step holds at least one row
  // each.
  const int64_t chunk = std::max<int64_t>(
      options.chunked_prefill_tokens.value_or(defaults.chunked_prefill_tokens), max_rows);

  HEDDLE_ASSIGN_OR_RETURN(
      const std::optional<checkpoint::Rounding> rounding,
      rounding_of(options.quantization, stored, options.load_format == LoadFormat::kDummy));
  std::optional<models::CacheNeeds> draft_needs;
  if (drafts.model != nullptr) draft_needs = drafts.model->cache_needs();
  const ForwardOptions forward{
      .model_dir = options.model_dir,
      .dummy_weights = options.load_format == LoadFormat::kDummy,
      .dtype = dtype_of(options.dtype),
      .kv_dtype = dtype_of(options.kv_cache_dtype),
      .exact = options.exact,
      .rounding = rounding,
      .num_threads = options.num_threads,
      .captures = captures_of(options.disable_cuda_graph, options.piecewise_cuda_graph_max_tokens,
                              options.cuda_graph_debug),
      .max_step_tokens = chunk,
      .max_logit_rows = max_rows + speculative::max_draft_rows(options.speculative),
      .max_sequences = max_rows,
      .hidden_states = drafts.model ? drafts.model->hidden_states() : std::vector<int64_t>(),
      .head_alone = options.cache.enabled,
      .on_load_progress = options.on_load_progress};
  const int64_t max_scored_rows = std::min(defaults.max_scored_rows, chunk);
  ForwardOptions with_scores = forward;
  with_scores.max_logit_rows += max_scored_rows;
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<ForwardPass> pass,
                          ForwardPass::create(with_scores, std::move(chosen.compute)));
  std::unique_ptr<ForwardPass> small_model;
  if (drafts.algorithm == DraftAlgorithm::kStandalone) {
    auto loaded = load_small_model(options, forward, *pass);
    if (!loaded.ok()) {
      return loaded.status().with_context(
          fmt::format("the model that drafts, {}", options.speculative.draft_model_dir.string()));
    }
    small_model = std::move(*loaded);
    draft_needs = small_model->cache_needs();
  }
  std::unique_ptr<DraftPass> draft_pass;
  if (drafts.model != nullptr) {
    const SpeculativeOptions& speculative = options.speculative;
    auto created = DraftPass::create(
        std::move(drafts.model),
        {.weights_dir =
             speculative.draft_model_dir.empty() ? options.model_dir : speculative.draft_model_dir,
         .dummy_weights = options.load_format == LoadFormat::kDummy,
         .is_models_own = speculative.algorithm == DraftAlgorithm::kMtp,
         .in_models_folder = speculative.draft_model_dir.empty(),
         .rounding = rounding,
         .num_threads = options.num_threads,
         .captures = forward.captures,
         .max_rows = speculative::max_draft_rows(speculative),
         .max_steps = speculative.eagle_topk > 1
                          ? speculative.num_steps
                          : std::max(speculative::num_draft_tokens(speculative), 1)},
        *pass);
    if (created.ok()) {
      draft_pass = std::move(*created);
    } else {
      HEDDLE_RETURN_IF_ERROR(leave_out_drafts(created.status(), asked, drafts));
    }
  }
  const checkpoint::ModelConfig& config = pass->config();
  choose_attention(options.attention_backend, options.page_size, *pass);
  const models::CacheNeeds needs = pass->cache_needs();
  const auto bytes_of = [](const auto& loaded) {
    return loaded->weights().bytes_copied() + loaded->weights().bytes_in_place();
  };
  const auto plan = [&] {
    options.speculative.algorithm = drafts.algorithm;
    if (drafts.algorithm == DraftAlgorithm::kNone) draft_needs.reset();
    const int32_t max_running = options.max_running_requests > 0 ? options.max_running_requests
                                                                 : defaults.max_running_requests;
    const bool counts_outputs = pass->device().kind() != device::DeviceKind::kCpu;
    const int64_t counts_bytes =
        counts_outputs ? OutputCounts::bytes_for(max_running, config.vocab_size) : 0;
    return plan_pools(options, config, needs, pass->kv_dtype(),
                      {.available_bytes = pass->device().available_memory_bytes() - counts_bytes,
                       .total_bytes = pass->device().total_memory_bytes(),
                       .weights_bytes = bytes_of(pass) + (draft_pass ? bytes_of(draft_pass) : 0) +
                                        (small_model ? bytes_of(small_model) : 0),
                       .release_granule_bytes = pass->device().release_granule_bytes(),
                       .hidden_dtype = pass->activations(),
                       .defaults = defaults,
                       .draft_needs = draft_needs});
  };
  Result<PlannedPools> planned_pools = plan();
  if (!planned_pools.ok()) {
    HEDDLE_RETURN_IF_ERROR(leave_out_drafts(planned_pools.status(), asked, drafts));
    draft_pass.reset();
    planned_pools = plan();
  }
  HEDDLE_ASSIGN_OR_RETURN(const PlannedPools planned, std::move(planned_pools));
  if (asked.speculative.algorithm == DraftAlgorithm::kAuto) {
    log_info(drafts.algorithm == DraftAlgorithm::kNone
                 ? fmt::format("speculation: none, {}", drafts.reason)
                 : fmt::format(
                       "speculation: mtp, the checkpoint's head; {}",
                       asked.speculative.num_draft_tokens == 0 && asked.speculative.num_steps == 0
                           ? "as many drafts as pay"
                           : "as many drafts as asked for"));
  }
  PoolSizes sizes = planned.plan.sizes;
  sizes.max_step_tokens = chunk;
  sizes.max_scored_rows = max_scored_rows;
  sizes.flops = pass->prefill_flops();
  HEDDLE_ASSIGN_OR_RETURN(
      Pools pools,
      Pools::create(pass->device(), needs,
                    {.sizes = sizes,
                     .kv_dtype = pass->kv_dtype(),
                     .kv_scales = pass->kv_scales(),
                     .snapshot_dtype = planned.snapshot_dtype,
                     .hidden_width = planned.hidden_width,
                     .hidden_dtype = pass->activations(),
                     .draft_needs = draft_needs,
                     .draft_kv_scales = small_model ? small_model->kv_scales()
                                                    : std::vector<checkpoint::KvScales>()}));
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::GenerationConfig generation,
                          checkpoint::load_generation_config(options.model_dir, config));

  LoadedModel loaded;
  loaded.info = {.name = std::filesystem::weakly_canonical(options.model_dir).filename().string(),
                 .architecture = config.architecture,
                 .dtype = std::string(to_string(pass->dtype())) + (options.exact ? ", exact" : ""),
                 .device = describe(pass->device()),
                 .device_reason = chosen.reason,
                 .num_parameters = pass->weights().num_parameters(),
                 .vocab_size = config.vocab_size,
                 .context_length = planned.plan.context_length,
                 .default_sampling = default_sampling(generation)};
  for (const int64_t id : generation.eos_token_ids) {
    loaded.info.eos_token_ids.push_back(static_cast<TokenId>(id));
  }
  int64_t drafter_bytes = 0;  // of weights that are copied
  int64_t drafter_mapped_bytes = 0;
  int64_t drafter_arena_bytes = 0;
  const auto count_drafter = [&](const auto& drafter) {
    drafter_bytes = drafter.weights().bytes_copied();
    drafter_mapped_bytes = drafter.weights().bytes_in_place();
    drafter_arena_bytes = drafter.arena_bytes();
  };
  if (draft_pass) count_drafter(*draft_pass);
  if (small_model) count_drafter(*small_model);
  int64_t draft_state_bytes =
      sizes.has_states() ? sizes.max_draft_rows * sizes.state_slot_bytes : 0;
  if (small_model) {
    draft_state_bytes += drafter_state_bytes(*draft_needs, sizes.max_step_sequences);
  }
  loaded.plan = {.weights_bytes = pass->weights().bytes_copied() + drafter_bytes,
                 .mapped_weights_bytes = pass->weights().bytes_in_place() + drafter_mapped_bytes,
                 .kv_pool_bytes = sizes.kv_pool_bytes(),
                 .window_pool_bytes = sizes.window_pool_bytes(),
                 .state_pool_bytes = sizes.state_pool_bytes(),
                 .snapshot_pool_bytes = sizes.snapshot_pool_bytes(),
                 .draft_state_bytes = draft_state_bytes,
                 .shared_pool_bytes = sizes.shared_bytes,
                 .activation_bytes = pass->arena_bytes() + drafter_arena_bytes,
                 .kv_tokens = sizes.kv_tokens(),
                 .window_tokens = sizes.window_tokens(),
                 .kv_dtype = std::string(to_string(pass->kv_dtype())),
                 .state_slots = sizes.num_state_slots,
                 .snapshot_slots = sizes.num_snapshot_slots,
                 .snapshot_dtype = std::string(to_string(planned.snapshot_dtype)),
                 .page_size = options.page_size,
                 .max_running_requests = sizes.max_step_sequences};
  loaded.options = settled(options, *pass, loaded.plan, loaded.info.context_length);
  const device::Device& used = pass->device();
  HEDDLE_ASSIGN_OR_RETURN(
      loaded.runner,
      ModelRunner::create(std::move(pass), std::move(pools), sizes, planned.plan.context_length,
                          {.pass = std::move(draft_pass),
                           .small_model = std::move(small_model),
                           .simulated_acceptance = options.speculative.simulated_acceptance}));
  loaded.plan.device_bytes = free_before - free_bytes(used);
  return loaded;
}

}  // namespace

Result<LoadedModel> load_model(const EngineOptions& options) {
  HEDDLE_RETURN_IF_ERROR(check_options(options));
  HEDDLE_ASSIGN_OR_RETURN(const DeviceRequest request, parse_device(options.device));
  HEDDLE_ASSIGN_OR_RETURN(ChosenDevice chosen,
                          choose_device(request, options.num_threads, options.exact));
  const bool may_fall_back = request.kind == DeviceRequest::Kind::kAuto &&
                             chosen.compute->device().kind() != device::DeviceKind::kCpu;
  Result<LoadedModel> loaded = load_on(options, std::move(chosen));
  if (may_fall_back && loaded.status().code() == StatusCode::kResourceExhausted) {
    HEDDLE_ASSIGN_OR_RETURN(ChosenDevice cpu,
                            fall_back_to_cpu(loaded.status(), options.num_threads, options.exact));
    loaded = load_on(options, std::move(cpu));
  }
  if (loaded.ok()) {
    log_info(fmt::format("device: {} ({})", loaded->info.device, loaded->info.device_reason));
  }
  return loaded;
}

}  // namespace heddle::runner
