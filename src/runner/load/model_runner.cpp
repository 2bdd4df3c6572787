// SPDX-License-Identifier: Apache-2.0
#include "runner/load/model_runner.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "cache/page_allocator.h"
#include "core/log.h"
#include "runner/load/choose_device.h"
#include "runner/load/model_load.h"
#include "runner/load/number_formats.h"
#include "speculative/draft_limits.h"

namespace heddle::runner {

namespace {

constexpr int32_t kMaxChunkTokens = 65536;

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
  if (options.num_ranks < 1 || options.num_ranks > checkpoint::kMaxRanks) {
    return invalid_argument(fmt::format("num_ranks {} is not within 1 to {}", options.num_ranks,
                                        checkpoint::kMaxRanks));
  }
  constexpr double kMostSeconds = 365 * 86'400;
  if (!(options.collective_timeout_seconds >= 0 &&
        options.collective_timeout_seconds <= kMostSeconds)) {
    return invalid_argument(fmt::format("collective_timeout_seconds {} is not within 0 to {}",
                                        options.collective_timeout_seconds, kMostSeconds));
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

}  // namespace

Result<LoadedModel> load_model(const EngineOptions& options) {
  HEDDLE_RETURN_IF_ERROR(check_options(options));
  HEDDLE_ASSIGN_OR_RETURN(const DeviceRequest request, parse_device(options.device));
  const int threads = threads_of_rank(options.num_threads, options.num_ranks);
  HEDDLE_ASSIGN_OR_RETURN(ChosenDevice chosen, choose_device(request, threads, options.exact));
  const bool may_fall_back = request.kind == DeviceRequest::Kind::kAuto &&
                             chosen.compute->device().kind() != device::DeviceKind::kCpu;
  Result<LoadedModel> loaded = ModelLoad(options, std::move(chosen)).run();
  if (may_fall_back && loaded.status().code() == StatusCode::kResourceExhausted) {
    HEDDLE_ASSIGN_OR_RETURN(ChosenDevice cpu,
                            fall_back_to_cpu(loaded.status(), threads, options.exact));
    loaded = ModelLoad(options, std::move(cpu)).run();
  }
  if (loaded.ok()) {
    log_info(fmt::format("device: {} ({})", loaded->info.device, loaded->info.device_reason));
  }
  return loaded;
}

}  // namespace heddle::runner
