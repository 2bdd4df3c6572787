// SPDX-License-Identifier: Apache-2.0
#include "server/server_info.h"

#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// Tokens that a sequence got from a step in which it decoded.
double accepted_length(const EngineStats& stats) {
  if (stats.decode_steps == 0) return 1;
  return 1 + static_cast<double>(stats.accepted_drafts) / static_cast<double>(stats.decode_steps);
}

Json internal_state(const MemoryPlan& plan, const EngineStats& stats) {
  const int64_t states_bytes = plan.state_pool_bytes + plan.snapshot_pool_bytes;
  const int64_t pools_bytes =
      (plan.shared_pool_bytes > 0 ? plan.shared_pool_bytes : plan.kv_pool_bytes + states_bytes) +
      plan.window_pool_bytes;
  return {{"last_gen_throughput", stats.decode_tokens_per_second},
          {"memory_usage",
           {{"weight", gigabytes(plan.weights_bytes + plan.mapped_weights_bytes)},
            {"kvcache", gigabytes(plan.kv_pool_bytes + plan.window_pool_bytes)},
            {"states", gigabytes(states_bytes)},
            {"kvcache_and_states", gigabytes(pools_bytes)},  // which may share their memory
            {"activations", gigabytes(plan.activation_bytes)},
            {"device", gigabytes(plan.device_bytes)},  // by the driver's count
            {"token_capacity", plan.kv_tokens}}},
          {"effective_max_running_requests_per_dp", plan.max_running_requests},
          {"num_running_reqs", stats.num_running},
          {"num_waiting_reqs", stats.num_waiting},
          {"num_used_tokens", stats.kv_tokens_used},
          {"num_used_states", stats.state_slots_used},
          {"num_steps", stats.steps},
          {"num_prompt_tokens", stats.prompt_tokens},
          {"num_output_tokens", stats.output_tokens},
          {"num_draft_tokens", stats.draft_tokens},
          {"num_accepted_draft_tokens", stats.accepted_drafts},
          {"avg_spec_accept_length", accepted_length(stats)},
          {"paused", stats.paused}};
}

}  // namespace

Json server_info(const ServerOptions& options, const Json& configuration, const Engine& engine,
                 const EngineStats& stats, std::string_view status) {
  Json info = configuration;
  info["status"] = status;
  info["version"] = options.version;
  info["tokenizer_path"] = options.model_path;
  info["served_model_name"] = options.served_model_names.front();  // /v1/models has them all
  info["max_total_num_tokens"] = engine.memory_plan().kv_tokens;
  info["max_req_input_len"] = engine.model_info().context_length - 1;
  info["internal_states"] = Json::array({internal_state(engine.memory_plan(), stats)});
  return info;
}

Json load_list(const EngineStats& stats, const LoadClock& now) {
  return Json::array({{{"rid", nullptr},
                       {"dp_rank", 0},
                       {"num_reqs", stats.num_running + stats.num_waiting},
                       {"num_waiting_reqs", stats.num_waiting},
                       {"num_tokens", stats.kv_tokens_used},
                       {"ts_tic", now.steady_seconds}}});
}

Json load_report(const Engine& engine, const EngineStats& stats, std::string_view version,
                 const LoadClock& now) {
  const MemoryPlan& plan = engine.memory_plan();
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  };
  const double token_usage = share(stats.kv_tokens_used, plan.kv_tokens);
  const double utilization = share(stats.num_running, plan.max_running_requests);
  return {{"timestamp", now.unix_seconds},
          {"version", version},
          {"dp_rank_count", 1},
          {"loads", Json::array({{{"dp_rank", 0},
                                  {"num_running_reqs", stats.num_running},
                                  {"num_waiting_reqs", stats.num_waiting},
                                  {"num_total_reqs", stats.num_running + stats.num_waiting},
                                  {"num_used_tokens", stats.kv_tokens_used},
                                  {"max_total_num_tokens", plan.kv_tokens},
                                  {"token_usage", token_usage},
                                  {"gen_throughput", stats.decode_tokens_per_second},
                                  {"utilization", utilization},
                                  {"max_running_requests", plan.max_running_requests}}})},
          {"aggregate",
           {{"total_running_reqs", stats.num_running},
            {"total_waiting_reqs", stats.num_waiting},
            {"total_reqs", stats.num_running + stats.num_waiting},
            {"avg_token_usage", token_usage},
            {"avg_throughput", stats.decode_tokens_per_second},
            {"avg_utilization", utilization}}}};
}

}  // namespace heddle::server
