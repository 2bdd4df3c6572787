// SPDX-License-Identifier: Apache-2.0
#include "effective_configuration.h"

#include <fmt/format.h>

namespace heddle::tools {
namespace {

constexpr int64_t kDefaultChunkTokens = 512;  // EngineOptions::chunked_prefill_tokens = 0

struct InLogLine {
  std::string operator()(bool value) const { return value ? "yes" : "no"; }

  std::string operator()(const std::string& value) const {
    return value.find(' ') == std::string::npos ? value : fmt::format("\"{}\"", value);
  }

  template <typename Number>
  std::string operator()(Number value) const {
    return fmt::format("{}", value);
  }
};

}  // namespace

server::EffectiveOptions effective_options(const EngineOptions& options, const Engine& engine) {
  const ModelInfo& model = engine.model_info();
  const MemoryPlan& plan = engine.memory_plan();
  const SchedulingOptions& scheduling = options.scheduling;
  const int64_t chunk =
      options.chunked_prefill_tokens > 0 ? options.chunked_prefill_tokens : kDefaultChunkTokens;
  return {{"model", model.name},
          {"architecture", model.architecture},
          {"dtype", model.dtype},
          {"kv_cache_dtype", plan.kv_dtype},
          {"quantization", options.quantization},
          {"exact", options.exact},
          {"device", model.device},
          {"context_length", model.context_length},
          {"max_running_requests", int64_t{plan.max_running_requests}},
          {"max_queued_requests", int64_t{options.max_queued_requests}},
          {"kv_tokens", plan.kv_tokens},
          {"page_size", int64_t{plan.page_size}},
          {"chunked_prefill_tokens", chunk},
          {"policy", scheduling.policy},
          {"priorities", scheduling.enable_priority},
          {"mixed_batches", scheduling.mixed_batches},
          {"overlap", scheduling.overlap},
          {"prefix_cache", options.cache.enabled},
          {"state_checkpoints", options.cache.state_checkpoints},
          {"state_dtype", options.cache.state_dtype},
          {"eviction", options.cache.eviction}};
}

std::string log_line(const server::EffectiveOptions& options) {
  std::string line = "configuration:";
  for (const auto& [name, value] : options) {
    line += fmt::format(" {}={}", name, std::visit(InLogLine(), value));
  }
  return line;
}

}  // namespace heddle::tools
