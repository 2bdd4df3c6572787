// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>

#include <heddle/engine.h>

#include "checkpoint/model_folder.h"
#include "core/clock.h"
#include "core/log.h"
#include "engine/engine_loop.h"
#include "engine/scheduler_setup.h"
#include "runner/load/model_runner.h"
#include "tokenizer/tokenizer.h"

namespace heddle {
namespace {

uint64_t system_seed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), 0) != static_cast<ssize_t>(sizeof(seed))) {
    log_warning("the system gave no random seed; requests without one repeat from start to start");
  }
  return seed;
}

std::string size(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.2f} GiB", value / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  return fmt::format("{:.1f} KiB", value / (1 << 10));
}

// Checks that a draft model has the tokenizer of the main model, whose token ids it reads and
// proposes.
Status check_drafters_tokens(const EngineOptions& options, const tokenizer::Tokenizer& tokenizer) {
  if (options.speculative.algorithm != DraftAlgorithm::kStandalone) return {};
  const std::filesystem::path& folder = options.speculative.draft_model_dir;
  const auto drafters = tokenizer::load_tokenizer(folder);
  const Status status =
      drafters.ok() ? tokenizer::check_same_tokens(tokenizer, **drafters) : drafters.status();
  if (status.ok()) return {};
  return status.with_context(
      fmt::format("the model that drafts, {}, needs the tokenizer of the model", folder.string()));
}

}  // namespace

std::string MemoryPlan::to_string() const {
  std::string text = fmt::format("weights {}", size(weights_bytes));
  if (mapped_weights_bytes > 0) text += fmt::format(" and {} mapped", size(mapped_weights_bytes));
  if (kv_pool_bytes > 0) {
    text += fmt::format(", KV {} for {} tokens in {}, pages of {}", size(kv_pool_bytes), kv_tokens,
                        kv_dtype, page_size);
  }
  if (window_pool_bytes > 0) {
    text += fmt::format(", sliding layers {} for {} tokens of windows", size(window_pool_bytes),
                        window_tokens);
  }
  if (state_pool_bytes > 0) {
    text += fmt::format(", states {} for {} sequences", size(state_pool_bytes), state_slots);
  }
  if (snapshot_pool_bytes > 0) {
    text += fmt::format(", cached states {} for {} in {}", size(snapshot_pool_bytes),
                        snapshot_slots, snapshot_dtype);
  }
  if (adapter_bytes > 0) text += fmt::format(", adapters {}", size(adapter_bytes));
  if (draft_state_bytes > 0) text += fmt::format(", drafts {}", size(draft_state_bytes));
  if (shared_pool_bytes > 0) {
    text += fmt::format(", {} within {}", snapshot_pool_bytes > 0 ? "all" : "both",
                        size(shared_pool_bytes));
  }
  text += fmt::format(", activations {}", size(activation_bytes));
  if (device_bytes > 0)
    text += fmt::format(", by the driver's count {} in all", size(device_bytes));
  text += fmt::format("; at most {} requests at once", max_running_requests);
  return text;
}

Result<std::vector<TokenId>> Engine::encode(std::string_view text) const {
  if (tokenizer() == nullptr) {
    return invalid_argument(
        "a text cannot be encoded: the engine was created with skip_tokenizer; give token ids");
  }
  return tokenizer()->encode(text);
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  HEDDLE_RETURN_IF_ERROR(engine::check_options(options));
  HEDDLE_RETURN_IF_ERROR(checkpoint::check_model_folder(options.model_dir));
  const SteadyClock clock;
  engine::EngineParts parts;
  parts.start = engine::StartTimes{.began_seconds = clock.now_seconds()};
  if (!options.skip_tokenizer) {
    HEDDLE_ASSIGN_OR_RETURN(parts.tokenizer, tokenizer::load_tokenizer(options.model_dir));
    HEDDLE_RETURN_IF_ERROR(check_drafters_tokens(options, *parts.tokenizer));
  }
  const double load_began = clock.now_seconds();
  HEDDLE_ASSIGN_OR_RETURN(runner::LoadedModel model, runner::load_model(options));
  parts.start->load_seconds = clock.now_seconds() - load_began;
  log_info(fmt::format("memory: {}", model.plan.to_string()));
  parts.runner = std::move(model.runner);
  parts.info = std::move(model.info);
  parts.plan = model.plan;
  parts.options = std::move(model.options);
  if (parts.options.random_seed == 0) parts.options.random_seed = system_seed();
  HEDDLE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> loop,
                          engine::EngineLoop::create(std::move(parts)));
  return loop;
}

}  // namespace heddle
