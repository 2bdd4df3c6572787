// SPDX-License-Identifier: Apache-2.0
#include "tools/effective_configuration.h"

#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::tools {
namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json model_json(const ServeSettings& settings, const Engine& engine) {
  const EngineOptions& options = engine.options();
  return {{"model_path", options.model_dir.string()},
          {"architecture", engine.model_info().architecture},
          {"load_format", to_string(options.load_format)},
          {"dtype", to_string(options.dtype)},
          {"kv_cache_dtype", to_string(options.kv_cache_dtype)},
          {"quantization", to_string(options.quantization)},
          {"exact", options.exact},
          {"context_length", options.context_length},
          {"chat_template", settings.model.chat_template},
          {"random_seed", options.random_seed}};
}

Json resources_json(const Engine& engine) {
  const EngineOptions& options = engine.options();
  return {{"device", engine.model_info().device},
          {"device_reason", engine.model_info().device_reason},
          {"threads", options.num_threads},
          {"tp", options.num_ranks},
          {"collective_timeout", options.collective_timeout_seconds},
          {"memory_fraction", or_null(options.memory_fraction)},
          {"mem_fraction_static", or_null(options.static_memory_fraction)},
          {"max_total_tokens", options.max_total_tokens},
          {"disable_cuda_graph", options.disable_cuda_graph},
          {"piecewise_cuda_graph_max_tokens", options.piecewise_cuda_graph_max_tokens},
          {"disable_piecewise_cuda_graph", options.piecewise_cuda_graph_max_tokens == 0},
          {"cuda_graph_debug", options.cuda_graph_debug},
          {"attention_backend", to_string(options.attention_backend)},
          {"page_size", options.page_size},
          {"max_running_requests", options.max_running_requests},
          {"max_queued_requests", options.max_queued_requests},
          {"chunked_prefill_tokens", or_null(options.chunked_prefill_tokens)},
          {"watchdog_timeout", options.watchdog_seconds}};
}

Json scheduling_json(const SchedulingOptions& options) {
  return {{"policy", to_string(options.policy)},
          {"conservativeness", options.conservativeness},
          {"mixed_batches", options.mixed_batches},
          {"overlap", options.overlap},
          {"prefills_per_decode", options.prefills_per_decode},
          {"max_prefill_tokens", options.max_prefill_tokens},
          {"target_itl_ms", options.target_itl_ms},
          {"cache_aware_max_wait_secs", options.cache_aware_max_wait_seconds},
          {"enable_priority", options.enable_priority},
          {"low_values_first", options.low_values_first},
          {"default_priority", or_null(options.default_priority)},
          {"reject_priority_when_disabled", options.reject_priority_when_disabled},
          {"preemption", options.preemption},
          {"preemption_threshold", options.preemption_threshold},
          {"max_preemptions", options.max_preemptions},
          {"preemption_min_run_secs", options.preemption_min_run_seconds},
          {"priority_aging_secs", options.aging_seconds},
          {"fair_cost_input", options.fair_cost_input},
          {"fair_cost_output", options.fair_cost_output},
          {"fair_cost_cached", options.fair_cost_cached},
          {"tenant_max_running", options.tenant_max_running},
          {"tenant_max_queued", options.tenant_max_queued},
          {"max_queued_tokens", options.max_queued_tokens},
          {"queue_timeout_secs", options.queue_timeout_seconds},
          {"running_timeout_secs", options.running_timeout_seconds}};
}

Json cache_json(const CacheOptions& options) {
  return {{"prefix_cache", options.enabled},
          {"state_snapshots", to_string(options.state_snapshots)},
          {"snapshot_interval", options.snapshot_interval},
          {"state_cache_dtype", to_string(options.state_dtype)},
          {"eviction", to_string(options.eviction)}};
}

Json speculation_json(const SpeculativeOptions& options) {
  return {{"speculative_algorithm", to_string(options.algorithm)},
          {"speculative_draft_model_path", options.draft_model_dir.string()},
          {"speculative_num_steps", options.num_steps},
          {"speculative_num_draft_tokens", options.num_draft_tokens},
          {"speculative_eagle_topk", options.eagle_topk}};
}

Json adapters_json(const ServeSettings& settings, const AdapterOptions& options) {
  return {{"enable_lora", settings.enable_lora},
          {"lora_paths", settings.adapters},
          {"max_loras_per_batch", options.num_slots},
          {"max_lora_rank", options.max_rank}};
}

Json server_json(const ServeSettings& settings, const Engine& engine) {
  const server::ServerOptions& options = settings.server;
  const MetricsOptions& metrics = engine.options().metrics;
  return {
      {"config", or_null(settings.config_file)},
      {"host", options.http.host},
      {"socket_mode", options.http.socket_mode
                          ? Json(fmt::format("{:o}", *options.http.socket_mode))
                          : Json(nullptr)},
      {"socket_group", options.http.socket_group},
      {"port", options.http.port},
      {"ssl_certfile", options.http.certificate_file},
      {"ssl_keyfile", options.http.key_file},
      {"weight_version", options.weight_version},
      {"served_model_name", options.served_model_names.empty()
                                ? Json::array({engine.model_info().name})
                                : Json(options.served_model_names)},
      {"allow_any_model_name", options.allow_any_model_name},
      {"api_key", options.api_key.empty() ? Json(nullptr) : Json("***")},
      {"admin_api_key", options.admin_api_key.empty() ? Json(nullptr) : Json("***")},
      {"api_keys_file",
       options.api_keys_file.empty() ? Json(nullptr) : Json(options.api_keys_file)},
      {"cache_isolation", settings.cache_isolation},
      {"cors_allow_origins", options.cors.origins},
      {"cors_allow_headers", options.cors.headers},
      {"allowed_hosts", options.allowed_hosts},
      {"root_path", options.root_path},
      {"error_format", settings.error_format},
      {"overload_status", options.overload_status},
      {"access_log_exclude", options.quiet_paths},
      {"log_requests", options.request_log.settings.on},
      {"log_requests_level", options.request_log.settings.level},
      {"log_requests_format", to_string(options.request_log.settings.format)},
      {"log_requests_target", settings.log_requests_target},
      {"max_request_bytes", options.http.max_request_bytes},
      {"file_storage_path",
       options.file_storage_path.empty() ? Json(nullptr) : Json(options.file_storage_path)},
      {"file_storage_bytes", options.file_storage_bytes},
      {"key_storage_share", options.key_storage_share},
      {"profile_path", options.profile_path.empty() ? Json(nullptr) : Json(options.profile_path)},
      {"api_docs", options.api_docs},
      {"sse_keepalive_secs", options.http.stream_keepalive_seconds},
      {"stream_commit_secs", options.http.stream_commit_seconds},
      {"shutdown_drain_delay_secs", settings.shutdown_drain_delay_seconds},
      {"shutdown_timeout_secs", options.shutdown_timeout_seconds},
      {"tokenizer_threads", options.num_workers},
      {"fair_key", settings.fair_key},
      {"tool_call_parser", settings.tool_call_parser},
      {"reasoning_parser", settings.reasoning_parser},
      {"max_thinking_tokens", or_null(options.answers.max_thinking_tokens)},
      {"thinking_budget_message", options.answers.thinking_budget_message},
      {"reasoning_field", settings.reasoning_field},
      {"max_tokens_overflow", settings.max_tokens_overflow},
      {"max_logprobs", options.answers.max_logprobs},
      {"max_stop", options.answers.max_stop},
      {"stream_interval", options.answers.stream_interval},
      {"incremental_streaming_output", options.answers.stream_increments},
      {"sampling_defaults", settings.sampling_defaults},
      {"preferred_sampling_params", options.answers.preferred_sampling_params.empty()
                                        ? Json(nullptr)
                                        : Json::parse(options.answers.preferred_sampling_params)},
      {"chat_template_kwargs", options.answers.chat_template_kwargs.empty()
                                   ? Json(nullptr)
                                   : Json::parse(options.answers.chat_template_kwargs)},
      {"json_whitespace", options.answers.json_whitespace},
      {"metrics", metrics.enabled},
      {"metrics_names", to_string(metrics.names)},
      {"metrics_tenants", metrics.max_tenants},
      {"log_level", settings.model.log_level},
      {"log_format", settings.model.log_format}};
}

}  // namespace

Json effective_configuration(const ServeSettings& settings, const Engine& engine) {
  Json json = model_json(settings, engine);
  json.update(resources_json(engine));
  json.update(scheduling_json(engine.options().scheduling));
  json.update(cache_json(engine.options().cache));
  json.update(speculation_json(engine.options().speculative));
  json.update(adapters_json(settings, engine.options().adapters));
  json.update(server_json(settings, engine));
  return json;
}

Json without_secrets(Json configuration) {
  for (const char* const secret : {"api_key", "admin_api_key", "api_keys_file", "random_seed"})
    configuration.erase(secret);
  return configuration;
}

}  // namespace heddle::tools
