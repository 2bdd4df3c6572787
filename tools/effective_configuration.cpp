// SPDX-License-Identifier: Apache-2.0
#include "effective_configuration.h"

#include <fmt/format.h>

namespace heddle::tools {
namespace {

constexpr int64_t kDefaultChunkTokens = 512;  // EngineOptions::chunked_prefill_tokens = 0

}  // namespace

std::string effective_configuration(const EngineOptions& options, const Engine& engine) {
  const ModelInfo& model = engine.model_info();
  const MemoryPlan& plan = engine.memory_plan();
  const SchedulingOptions& scheduling = options.scheduling;
  const auto yes = [](bool value) { return value ? "yes" : "no"; };
  const int64_t chunk =
      options.chunked_prefill_tokens > 0 ? options.chunked_prefill_tokens : kDefaultChunkTokens;
  return fmt::format(
      "configuration: model={} architecture={} dtype={} quantization={} exact={} device=\"{}\" "
      "context_length={} max_running_requests={} max_queued_requests={} kv_tokens={} page_size={} "
      "chunked_prefill_tokens={} policy={} priorities={} mixed_batches={} overlap={} "
      "prefix_cache={}",
      model.name, model.architecture, model.dtype, options.quantization, yes(options.exact),
      model.device, model.context_length, plan.max_running_requests, options.max_queued_requests,
      plan.kv_tokens, plan.page_size, chunk, scheduling.policy, yes(scheduling.enable_priority),
      yes(scheduling.mixed_batches), yes(scheduling.overlap), yes(options.cache.enabled));
}

}  // namespace heddle::tools
