// SPDX-License-Identifier: Apache-2.0
#include "server/server_info.h"

#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

Json internal_state(const Engine& engine) {
  const MemoryPlan& plan = engine.memory_plan();
  const EngineStats stats = engine.stats();
  const int64_t states_bytes = plan.state_pool_bytes + plan.frozen_pool_bytes;
  const int64_t pools_bytes =
      plan.shared_pool_bytes > 0 ? plan.shared_pool_bytes : plan.kv_pool_bytes + states_bytes;
  return {{"last_gen_throughput", stats.decode_tokens_per_second},
          {"memory_usage",
           {{"weight", gigabytes(plan.weights_bytes + plan.mapped_weights_bytes)},
            {"kvcache", gigabytes(plan.kv_pool_bytes)},
            {"states", gigabytes(states_bytes)},
            {"kvcache_and_states", gigabytes(pools_bytes)},  // which may share their memory
            {"activations", gigabytes(plan.activation_bytes)},
            {"token_capacity", plan.kv_tokens},
            {"graph", 0}}},
          {"effective_max_running_requests_per_dp", plan.max_running_requests},
          {"num_running_reqs", stats.num_running},
          {"num_waiting_reqs", stats.num_waiting},
          {"num_used_tokens", stats.kv_tokens_used},
          {"num_used_states", stats.state_slots_used},
          {"num_steps", stats.steps},
          {"num_prompt_tokens", stats.prompt_tokens},
          {"num_output_tokens", stats.output_tokens},
          {"paused", stats.paused}};
}

}  // namespace

Json server_info(const ServerOptions& options, const EffectiveOptions& effective,
                 const Engine& engine, std::string_view status) {
  const HttpServerOptions& http = options.http;
  Json info = {{"status", status},
               {"version", options.version},
               {"model_path", options.model_path},
               {"tokenizer_path", options.model_path},
               {"served_model_name", options.served_model_names.front()},
               {"host", http.host},
               {"port", http.port},
               {"max_request_bytes", http.max_request_bytes},
               {"tokenizer_threads", options.num_workers},
               {"allow_any_model_name", options.allow_any_model_name},
               {"enable_metrics", options.metrics}};
  for (const EffectiveOption& option : effective) {
    std::visit([&](const auto& value) { info[option.name] = value; }, option.value);
  }
  const int64_t context_length = engine.model_info().context_length;
  info["max_total_num_tokens"] = engine.memory_plan().kv_tokens;
  info["max_req_input_len"] = context_length - 1;
  info["internal_states"] = Json::array({internal_state(engine)});
  return info;
}

}  // namespace heddle::server
