// SPDX-License-Identifier: Apache-2.0
#include "runner/model_runner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cache/page_allocator.h"
#include "cache/pool_sizing.h"
#include "checkpoint/generation_config.h"
#include "core/check.h"
#include "ops/simd/target_name.h"
#include "runner/forward_batch.h"
#include "runner/forward_pass.h"
#include "runner/pools.h"
#include "sampling/sampler.h"

namespace heddle::runner {

namespace {

constexpr int64_t kDefaultChunkTokens = 512;
constexpr int32_t kMaxChunkTokens = 65536;

class ModelRunner final : public Runner {
 public:
  ModelRunner(std::unique_ptr<ForwardPass> pass, Pools pools, const PoolSizes& sizes,
              int64_t context_length)
      : pass_(std::move(pass)),
        pools_(std::move(pools)),
        sizes_(sizes),
        batch_(sizes.max_step_tokens, sizes.max_step_sequences,
               (context_length + sizes.page_size - 1) / sizes.page_size, sizes.page_size),
        sampler_(pass_->config().vocab_size) {}

  const PoolSizes& pool_sizes() const override { return sizes_; }

  Status submit(const request::BatchPlan& plan) override {
    HEDDLE_CHECK(submitted_ == nullptr);
    submitted_ = &plan;
    return {};
  }

  Result<request::StepOutput> wait() override {
    HEDDLE_CHECK(submitted_ != nullptr);
    const request::BatchPlan& plan = *std::exchange(submitted_, nullptr);
    for (const int32_t slot : plan.zero_state_slots) {
      if (sizes_.num_state_slots == 0) break;
      HEDDLE_RETURN_IF_ERROR(pools_.states().zero_slot(pass_->stream(), slot));
    }
    HEDDLE_RETURN_IF_ERROR(batch_.build(plan, LogitRows::kSampled));
    HEDDLE_RETURN_IF_ERROR(pass_->run(batch_.ids(), batch_.positions(), batch_.context(pools_)));

    request::StepOutput output = std::move(recycled_);
    output.tokens.clear();
    const auto vocab_size = static_cast<size_t>(pass_->config().vocab_size);
    int64_t row = 0;
    for (const request::PlannedSequence& sequence : plan.sequences) {
      if (!sequence.sample) continue;
      output.tokens.emplace_back();
      sampler_.sample({pass_->logits().row<float>(row++), vocab_size}, sequence,
                      output.tokens.back());
    }
    return output;
  }

  void recycle(request::StepOutput output) override { recycled_ = std::move(output); }

 private:
  std::unique_ptr<ForwardPass> pass_;
  Pools pools_;
  PoolSizes sizes_;
  ForwardBatch batch_;
  sampling::Sampler sampler_;
  const request::BatchPlan* submitted_ = nullptr;
  request::StepOutput recycled_;  // its memory serves the next step
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

Result<std::optional<DType>> run_dtype(const EngineOptions& options) {
  if (options.dtype == "auto") return std::optional<DType>();
  HEDDLE_ASSIGN_OR_RETURN(const DType dtype, parse_dtype(options.dtype));
  if (options.exact && dtype != DType::kF32) {
    return invalid_argument(
        fmt::format("exact mode computes in float32; dtype is \"{}\"", options.dtype));
  }
  return std::optional<DType>(dtype);
}

Status check_options(const EngineOptions& options) {
  if (options.load_format != "auto" && options.load_format != "safetensors" &&
      options.load_format != "dummy") {
    return invalid_argument(fmt::format(
        "load_format \"{}\" is not known; use auto, safetensors or dummy", options.load_format));
  }
  if (!cache::valid_page_size(options.page_size)) {
    return invalid_argument(
        fmt::format("page_size {} is not a power of two from 1 to 128", options.page_size));
  }
  if (options.num_threads < 0 || options.num_threads > 1024) {
    return invalid_argument(fmt::format("threads {} is not within 0 to 1024", options.num_threads));
  }
  if (options.chunked_prefill_tokens < 0 || options.chunked_prefill_tokens > kMaxChunkTokens) {
    return invalid_argument(fmt::format("chunked_prefill_tokens {} is not within 0 to {}",
                                        options.chunked_prefill_tokens, kMaxChunkTokens));
  }
  if (options.max_running_requests < 0 || options.max_running_requests > cache::kMaxRunningLimit) {
    return invalid_argument(fmt::format("max_running_requests {} is not within 0 to {}",
                                        options.max_running_requests, cache::kMaxRunningLimit));
  }
  if (!(options.memory_fraction > 0 && options.memory_fraction <= 1)) {
    return invalid_argument(
        fmt::format("memory_fraction {} is not within (0, 1]", options.memory_fraction));
  }
  return {};
}

}  // namespace

Result<LoadedModel> load_model(const EngineOptions& options) {
  HEDDLE_RETURN_IF_ERROR(check_options(options));
  HEDDLE_ASSIGN_OR_RETURN(const std::optional<DType> dtype, run_dtype(options));
  const int32_t max_rows =
      options.max_running_requests > 0 ? options.max_running_requests : cache::kDefaultMaxRunning;
  // Every running sequence may decode in a step that also prefills: the step holds at least one row
  // each.
  const int64_t chunk = std::max<int64_t>(
      options.chunked_prefill_tokens > 0 ? options.chunked_prefill_tokens : kDefaultChunkTokens,
      max_rows);

  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<ForwardPass> pass,
                          ForwardPass::create({.model_dir = options.model_dir,
                                               .dummy_weights = options.load_format == "dummy",
                                               .dtype = dtype,
                                               .exact = options.exact,
                                               .num_threads = options.num_threads,
                                               .max_step_tokens = chunk,
                                               .max_logit_rows = max_rows,
                                               .on_load_progress = options.on_load_progress}));
  const checkpoint::ModelConfig& config = pass->config();
  const models::CacheNeeds needs = pass->cache_needs();
  int64_t context_length = config.max_position_embeddings;
  if (options.context_length < 0 || options.context_length > context_length) {
    return invalid_argument(fmt::format("context_length {} is not within 1 to the model's {}",
                                        options.context_length, context_length));
  }
  if (options.context_length > 0) context_length = options.context_length;

  const auto budget_bytes = static_cast<int64_t>(
      static_cast<double>(pass->device().available_memory_bytes()) * options.memory_fraction);
  HEDDLE_ASSIGN_OR_RETURN(
      const cache::PoolPlan plan,
      cache::size_pools({.bytes = budget_bytes,
                         .kv = kv_layout(needs, options.page_size, pass->dtype()),
                         .state = state_layout(needs),
                         .context_length = context_length,
                         .max_running_requests = options.max_running_requests,
                         .max_total_tokens = options.max_total_tokens}));
  HEDDLE_ASSIGN_OR_RETURN(Pools pools,
                          Pools::create(pass->device(), needs, plan.num_pages, options.page_size,
                                        pass->dtype(), plan.num_state_slots));
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::GenerationConfig generation,
                          checkpoint::load_generation_config(options.model_dir, config));

  LoadedModel loaded;
  loaded.info = {.name = std::filesystem::weakly_canonical(options.model_dir).filename().string(),
                 .architecture = config.architecture,
                 .dtype = std::string(to_string(pass->dtype())) + (options.exact ? ", exact" : ""),
                 .device = fmt::format("{}, {}", pass->device().name(), ops::simd_target_name()),
                 .num_parameters = pass->weights().num_parameters(),
                 .vocab_size = config.vocab_size,
                 .context_length = plan.context_length,
                 .default_sampling = default_sampling(generation)};
  for (const int64_t id : generation.eos_token_ids) {
    loaded.info.eos_token_ids.push_back(static_cast<TokenId>(id));
  }
  loaded.plan = {.weights_bytes = pass->weights().bytes_copied(),
                 .mapped_weights_bytes = pass->weights().bytes_in_place(),
                 .kv_pool_bytes = plan.kv_pool_bytes,
                 .state_pool_bytes = plan.state_pool_bytes,
                 .activation_bytes = pass->program().memory.arena_bytes,
                 .kv_tokens = plan.num_pages * options.page_size,
                 .state_slots = plan.num_state_slots,
                 .page_size = options.page_size,
                 .max_running_requests = plan.max_running_requests};
  const PoolSizes sizes{.num_pages = plan.num_pages,
                        .page_size = options.page_size,
                        .num_state_slots = plan.num_state_slots,
                        .max_step_tokens = chunk,
                        .max_step_sequences = plan.max_running_requests};
  loaded.runner =
      std::make_unique<ModelRunner>(std::move(pass), std::move(pools), sizes, plan.context_length);
  return loaded;
}

}  // namespace heddle::runner
