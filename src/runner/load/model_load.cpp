// SPDX-License-Identifier: Apache-2.0
#include "runner/load/model_load.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/generation_config.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/hub_cache.h"
#include "core/log.h"
#include "models/registry.h"
#include "ops/simd/this_cpu.h"
#include "runner/drafting/draft_maker.h"
#include "runner/drafting/standalone_maker.h"
#include "runner/load/attention_backend.h"
#include "runner/load/number_formats.h"
#include "runner/step/output_counts.h"
#include "runner/step/pools.h"
#include "speculative/draft_limits.h"

namespace heddle::runner {

namespace {

constexpr int64_t kMostVocabularyPadding = 256;
// Most prompt tokens of a step in exact mode if ranks share the experts: their terms take a row of
// the arena for every token and chosen expert.
constexpr int64_t kMostSharedExactTokens = 1024;

SamplingParams default_sampling(const checkpoint::GenerationConfig& config) {
  SamplingParams params;
  if (config.repetition_penalty) {
    params.repetition_penalty = static_cast<float>(*config.repetition_penalty);
  }
  if (config.do_sample.has_value() && !*config.do_sample) {
    params.temperature = 0;
    return params;
  }
  if (config.temperature) params.temperature = static_cast<float>(*config.temperature);
  if (config.top_p) params.top_p = static_cast<float>(*config.top_p);
  if (config.top_k && *config.top_k > 0) params.top_k = static_cast<int32_t>(*config.top_k);
  if (config.min_p) params.min_p = static_cast<float>(*config.min_p);
  return params;
}

std::string describe(const device::Device& device) {
  if (device.kind() != device::DeviceKind::kCpu) return device.name();
  return fmt::format("{}, {}", device.name(), ops::simd_target_name());
}

// Free memory of a GPU; 0 on the CPU, which commits the memory of its pools later.
int64_t free_bytes(const device::Device& device) {
  return device.kind() == device::DeviceKind::kCpu ? 0 : device.available_memory_bytes();
}

template <typename Loaded>
int64_t weight_bytes(const Loaded& loaded) {
  return loaded == nullptr ? 0
                           : loaded->weights().bytes_copied() + loaded->weights().bytes_in_place();
}

}  // namespace

ModelLoad::ModelLoad(const EngineOptions& options, ChosenDevice device)
    : asked_(options),
      options_(options),
      device_(std::move(device)),
      defaults_(defaults_for(device_.compute->device().kind())),
      free_before_(free_bytes(device_.compute->device())) {}

Result<LoadedModel> ModelLoad::run() {
  HEDDLE_RETURN_IF_ERROR(choose());
  HEDDLE_RETURN_IF_ERROR(load_target());
  HEDDLE_RETURN_IF_ERROR(load_drafter());
  choose_attention(options_.attention_backend, options_.page_size, *pass_);
  HEDDLE_RETURN_IF_ERROR(plan_memory());
  return start();
}

Status ModelLoad::choose() {
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::ModelConfig stored,
                          models::load_config(asked_.model_dir));
  HEDDLE_ASSIGN_OR_RETURN(drafts_, choose_drafts(asked_, stored));
  HEDDLE_ASSIGN_OR_RETURN(rounding_, rounding_of(options_.quantization, stored, is_dummy()));
  options_.speculative.algorithm = drafts_.algorithm;
  if (drafts_.model != nullptr) draft_needs_ = drafts_.model->cache_needs();
  const int32_t max_rows = options_.max_running_requests > 0 ? options_.max_running_requests
                                                             : defaults_.max_running_requests;
  if (options_.exact && options_.num_ranks > 1 && stored.moe &&
      options_.chunked_prefill_tokens.value_or(0) > kMostSharedExactTokens) {
    log_warning(fmt::format(
        "chunked_prefill_tokens: {} instead of {}, because ranks share experts in exact mode",
        kMostSharedExactTokens, *options_.chunked_prefill_tokens));
    options_.chunked_prefill_tokens = kMostSharedExactTokens;
  }
  // Every running sequence may decode in a step that also prefills, so a step holds at least one
  // row for each.
  const int64_t chunk = std::max<int64_t>(
      options_.chunked_prefill_tokens.value_or(defaults_.chunked_prefill_tokens), max_rows);
  max_scored_rows_ = std::min(defaults_.max_scored_rows, chunk);
  forward_ = {
      .model_dir = options_.model_dir,
      .dummy_weights = is_dummy(),
      .dtype = dtype_of(options_.dtype),
      .kv_dtype = dtype_of(options_.kv_cache_dtype),
      .exact = options_.exact,
      .rounding = rounding_,
      .num_threads = options_.num_threads,
      .captures = captures_of(options_.disable_cuda_graph, options_.piecewise_cuda_graph_max_tokens,
                              options_.cuda_graph_debug),
      .max_step_tokens = chunk,
      .max_logit_rows = max_rows + speculative::max_draft_rows(options_.speculative),
      .max_sequences = max_rows,
      .hidden_states = drafts_.model ? drafts_.model->hidden_states() : std::vector<int64_t>(),
      .head_alone = options_.cache.enabled,
      .num_adapter_slots = options_.adapters.num_slots,
      .max_adapter_rank = options_.adapters.max_rank,
      .on_load_progress = options_.on_load_progress,
      .num_ranks = options_.num_ranks,
      .collective_timeout = collective_timeout_of(options_.collective_timeout_seconds)};
  return {};
}

Status ModelLoad::load_target() {
  ForwardOptions with_scores = forward_;
  with_scores.max_logit_rows += max_scored_rows_;
  HEDDLE_ASSIGN_OR_RETURN(pass_, ForwardPass::create(with_scores, std::move(device_.compute)));
  return {};
}

Status ModelLoad::load_drafter() {
  if (drafts_.algorithm == DraftAlgorithm::kStandalone) {
    return load_small_model().with_context(
        fmt::format("the model that drafts, {}", options_.speculative.draft_model_dir.string()));
  }
  if (drafts_.model == nullptr) return {};
  Status loaded = load_draft_pass();
  return loaded.ok() ? Status() : leave_out_drafts(std::move(loaded));
}

// Loads a standalone draft model. Its vocabulary may be padded differently from the model's.
Status ModelLoad::load_small_model() {
  const std::filesystem::path& folder = options_.speculative.draft_model_dir;
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::ModelConfig config, models::load_config(folder));
  const int64_t vocab_size = pass_->config().vocab_size;
  if (std::abs(config.vocab_size - vocab_size) > kMostVocabularyPadding) {
    return invalid_argument(
        fmt::format("it has a vocabulary of {} tokens, the model one of {}; a model that drafts "
                    "for another has the same tokenizer",
                    config.vocab_size, vocab_size));
  }
  ForwardOptions small = forward_;
  small.model_dir = folder;
  small.dtype = pass_->dtype();
  small.kv_dtype = pass_->kv_dtype();
  small.max_step_tokens += forward_.max_sequences;  // the small model also reads the drawn tokens
  small.hidden_states = {};
  small.head_alone = false;
  small.num_adapter_slots = 0;
  small.on_load_progress = nullptr;
  HEDDLE_ASSIGN_OR_RETURN(small_model_, ForwardPass::create(small, pass_->shared_compute()));
  draft_needs_ = small_model_->cache_needs();
  return {};
}

Status ModelLoad::load_draft_pass() {
  const SpeculativeOptions& speculative = options_.speculative;
  const bool in_models_folder = speculative.draft_model_dir.empty();
  HEDDLE_ASSIGN_OR_RETURN(
      draft_pass_,
      DraftPass::create(
          std::move(drafts_.model),
          {.weights_dir = in_models_folder ? options_.model_dir : speculative.draft_model_dir,
           .dummy_weights = is_dummy(),
           .is_models_own = speculative.algorithm == DraftAlgorithm::kMtp,
           .in_models_folder = in_models_folder,
           .rounding = rounding_,
           .num_threads = options_.num_threads,
           .captures = forward_.captures,
           .max_rows = speculative::max_draft_rows(speculative),
           .max_steps = speculative.eagle_topk > 1
                            ? speculative.num_steps
                            : std::max(speculative::num_draft_tokens(speculative), 1)},
          *pass_));
  return {};
}

// Undoes a choice of drafts that the runner made. Error: `failed`, if the user named the drafter.
Status ModelLoad::leave_out_drafts(Status failed) {
  if (!chooses_drafts() || drafts_.algorithm == DraftAlgorithm::kNone) return failed;
  drafts_ = {.algorithm = DraftAlgorithm::kNone, .model = nullptr, .reason = failed.message()};
  options_.speculative.algorithm = DraftAlgorithm::kNone;
  draft_needs_.reset();
  draft_pass_.reset();
  return {};
}

Status ModelLoad::plan_memory() {
  Result<PlannedPools> planned = plan_pools_once();
  if (!planned.ok()) {
    HEDDLE_RETURN_IF_ERROR(leave_out_drafts(planned.status()));
    planned = plan_pools_once();
  }
  HEDDLE_ASSIGN_OR_RETURN(planned_, std::move(planned));
  if (chooses_drafts()) {
    const SpeculativeOptions& asked = asked_.speculative;
    log_info(drafts_.algorithm == DraftAlgorithm::kNone
                 ? fmt::format("speculation: none, {}", drafts_.reason)
                 : fmt::format("speculation: mtp, the checkpoint's head; {}",
                               asked.num_draft_tokens == 0 && asked.num_steps == 0
                                   ? "as many drafts as pay"
                                   : "as many drafts as asked for"));
  }
  sizes_ = planned_.plan.sizes;
  limits_ = planned_.limits;
  limits_.max_tokens = forward_.max_step_tokens;
  limits_.max_scored_rows = max_scored_rows_;
  limits_.short_rope_tokens = checkpoint::short_rope_tokens(pass_->config().rope);
  sizes_.flops = pass_->prefill_flops();
  return {};
}

Result<PlannedPools> ModelLoad::plan_pools_once() {
  const device::Device& device = pass_->device();
  const int64_t counts_bytes =
      device.kind() == device::DeviceKind::kCpu
          ? 0
          : OutputCounts::bytes_for(forward_.max_sequences, pass_->config().vocab_size);
  return plan_pools(
      options_, pass_->config(), pass_->cache_needs(), pass_->kv_dtype(),
      {.available_bytes = device.available_memory_bytes() / pass_->num_ranks() - counts_bytes,
       .total_bytes = device.total_memory_bytes() / pass_->num_ranks(),
       .weights_bytes = weight_bytes(pass_) + weight_bytes(draft_pass_) +
                        weight_bytes(small_model_) + pass_->adapter_bytes(),
       .release_granule_bytes = device.release_granule_bytes(),
       .hidden_dtype = pass_->activations(),
       .defaults = defaults_,
       .draft_needs = draft_needs_});
}

Result<std::vector<Pools>> ModelLoad::make_pools() const {
  std::vector<Pools> pools;
  for (int64_t rank = 0; rank < pass_->num_ranks(); ++rank) {
    ForwardPass& own = pass_->of_rank(rank);
    HEDDLE_ASSIGN_OR_RETURN(
        Pools made,
        Pools::create(own.device(), own.cache_needs(),
                      {.sizes = sizes_,
                       .num_draft_slots = limits_.max_draft_rows,
                       .kv_dtype = own.kv_dtype(),
                       .kv_scales = own.kv_scales(),
                       .snapshot_dtype = planned_.snapshot_dtype,
                       .hidden_width = planned_.hidden_width,
                       .hidden_dtype = own.activations(),
                       .draft_needs = draft_needs_,
                       .draft_kv_scales = small_model_ ? small_model_->kv_scales()
                                                       : std::vector<checkpoint::KvScales>()}));
    pools.push_back(std::move(made));
  }
  return pools;
}

Result<LoadedDrafts> ModelLoad::make_drafting() {
  const int64_t pages = max_pages(planned_.plan.context_length, sizes_.page_size);
  LoadedDrafts drafts;
  drafts.of_steps.simulated_acceptance = options_.speculative.simulated_acceptance;
  drafts.pass = draft_pass_.get();
  if (draft_pass_ != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(
        drafts.of_steps.maker,
        DraftMaker::create(std::move(draft_pass_), *pass_, pages,
                           {.topk = limits_.draft_topk,
                            .num_steps = limits_.draft_steps,
                            .num_drafts = static_cast<int32_t>(limits_.max_made_drafts)}));
  }
  if (small_model_ != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(
        drafts.of_steps.maker,
        StandaloneMaker::create(std::move(small_model_), sizes_, limits_.max_made_drafts,
                                pass_->config().vocab_size, pages));
  }
  return drafts;
}

Result<ModelInfo> ModelLoad::describe_model() const {
  const checkpoint::ModelConfig& config = pass_->config();
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::GenerationConfig generation,
                          checkpoint::load_generation_config(options_.model_dir, config));
  ModelInfo info{
      .name = checkpoint::model_name(options_.model_dir),
      .architecture = config.architecture,
      .dtype = std::string(to_string(pass_->dtype())) + (options_.exact ? ", exact" : ""),
      .device = describe(pass_->device()),
      .device_reason = device_.reason,
      .num_parameters = pass_->num_parameters(),
      .vocab_size = config.vocab_size,
      .context_length = planned_.plan.context_length,
      .default_sampling = default_sampling(generation)};
  for (const int64_t id : generation.eos_token_ids) {
    info.eos_token_ids.push_back(static_cast<TokenId>(id));
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto gguf, checkpoint::find_gguf(options_.model_dir));
  if (!gguf) return info;
  HEDDLE_ASSIGN_OR_RETURN(const auto file, checkpoint::GgufModel::open(*gguf));
  HEDDLE_ASSIGN_OR_RETURN(const auto family, file.metadata().text("general.architecture"));
  info.file_format = "gguf";
  info.family = family.value_or("");
  info.quantization = file.quantization();
  return info;
}

MemoryPlan ModelLoad::describe_memory() const {
  int64_t drafter_bytes = 0;  // weights that are copied to the device
  int64_t drafter_mapped_bytes = 0;
  int64_t drafter_arena_bytes = 0;
  const auto count_drafter = [&](const auto& drafter) {
    drafter_bytes = drafter.weights().bytes_copied();
    drafter_mapped_bytes = drafter.weights().bytes_in_place();
    drafter_arena_bytes = drafter.arena_bytes();
  };
  if (draft_pass_) count_drafter(*draft_pass_);
  if (small_model_) count_drafter(*small_model_);
  int64_t draft_state_bytes =
      sizes_.has_states() ? limits_.max_draft_rows * sizes_.state_slot_bytes : 0;
  if (small_model_) {
    draft_state_bytes += drafter_state_bytes(*draft_needs_, sizes_.max_sequences);
  }
  const int64_t num_ranks = pass_->num_ranks();  // with pools of the same sizes
  int64_t copied_bytes = 0;
  int64_t mapped_bytes = 0;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const checkpoint::LoadedWeights& own = pass_->of_rank(rank).weights();
    copied_bytes += own.bytes_copied();
    mapped_bytes += own.bytes_in_place();
  }
  return {.weights_bytes = copied_bytes + drafter_bytes,
          .mapped_weights_bytes = mapped_bytes + drafter_mapped_bytes,
          .kv_pool_bytes = num_ranks * sizes_.kv_pool_bytes(),
          .window_pool_bytes = num_ranks * sizes_.window_pool_bytes(),
          .state_pool_bytes = num_ranks * sizes_.state_pool_bytes(),
          .snapshot_pool_bytes = num_ranks * sizes_.snapshot_pool_bytes(),
          .adapter_bytes = pass_->adapter_bytes(),
          .draft_state_bytes = num_ranks * draft_state_bytes,
          .shared_pool_bytes = num_ranks * sizes_.shared_bytes,
          .activation_bytes = num_ranks * pass_->arena_bytes() + drafter_arena_bytes,
          .kv_tokens = sizes_.kv_tokens(),
          .window_tokens = sizes_.window_tokens(),
          .kv_dtype = std::string(to_string(pass_->kv_dtype())),
          .state_slots = sizes_.num_state_slots,
          .snapshot_slots = sizes_.num_snapshot_slots,
          .snapshot_dtype = std::string(to_string(planned_.snapshot_dtype)),
          .page_size = options_.page_size,
          .max_running_requests = sizes_.max_sequences};
}

EngineOptions ModelLoad::settled_options(const MemoryPlan& plan) const {
  EngineOptions options = options_;
  const device::DeviceKind kind = pass_->device().kind();
  if (options.device == "auto") options.device = kind == device::DeviceKind::kCpu ? "cpu" : "cuda";
  options.chunked_prefill_tokens =
      options.chunked_prefill_tokens.value_or(defaults_.chunked_prefill_tokens);
  if (!options.static_memory_fraction) {
    options.memory_fraction = options.memory_fraction.value_or(defaults_.memory_fraction);
  }
  if (options.load_format == LoadFormat::kAuto) options.load_format = LoadFormat::kSafetensors;
  options.dtype = run_dtype(pass_->dtype());
  options.kv_cache_dtype = kv_cache_dtype(pass_->kv_dtype());
  if (const device::ThreadPool* pool = pass_->compute().pool()) {
    options.num_threads = pool->num_threads() * options.num_ranks;
  }
  options.context_length = planned_.plan.context_length;
  options.max_running_requests = plan.max_running_requests;
  options.max_total_tokens = plan.kv_tokens;
  if (options.speculative.num_steps > 0) {
    options.speculative.num_draft_tokens = speculative::num_draft_tokens(options.speculative);
  }
  options.on_load_progress = nullptr;
  return options;
}

Result<LoadedModel> ModelLoad::start() {
  LoadedModel loaded;
  HEDDLE_ASSIGN_OR_RETURN(std::vector<Pools> pools, make_pools());
  HEDDLE_ASSIGN_OR_RETURN(loaded.info, describe_model());
  loaded.plan = describe_memory();
  loaded.options = settled_options(loaded.plan);
  const device::Device& device = pass_->device();
  HEDDLE_ASSIGN_OR_RETURN(LoadedDrafts drafts, make_drafting());
  HEDDLE_ASSIGN_OR_RETURN(loaded.runner,
                          StepRunner::create(std::move(pass_), std::move(pools), sizes_, limits_,
                                             planned_.plan.context_length, std::move(drafts)));
  loaded.plan.device_bytes = free_before_ - free_bytes(device);
  return loaded;
}

}  // namespace heddle::runner
