// SPDX-License-Identifier: Apache-2.0
#include "server/served_model.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/log.h"
#include "models/registry.h"
#include "server/call/sampling_fields.h"
#include "server/http/api_error.h"
#include "server/http/json_text.h"
#include "server/http/key_ring.h"
#include "server/http/list_page.h"
#include "server/http/routes.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// Average number of tokens that a sequence gets from a step in which it decodes.
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
            {"kvcache_and_states", gigabytes(pools_bytes)},  // pools may share their memory
            {"activations", gigabytes(plan.activation_bytes)},
            {"device", gigabytes(plan.device_bytes)},  // device memory, as the driver reports it
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

// The answer of /get_server_info. `status` is the status text of /health.
Json server_info(const ServerOptions& options, const Json& configuration, const Engine& engine,
                 const EngineStats& stats, std::string_view status) {
  Json info = configuration;
  info["status"] = status;
  info["version"] = options.version;
  info["tokenizer_path"] = options.model_path;
  // Only the first name; /v1/models lists all.
  info["served_model_name"] = options.served_model_names.front();
  info["max_total_num_tokens"] = engine.memory_plan().kv_tokens;
  info["max_req_input_len"] = engine.model_info().context_length - 1;
  info["internal_states"] = Json::array({internal_state(engine.memory_plan(), stats)});
  return info;
}

// Whether requests can turn reasoning on and off: whether the template then writes another prompt.
bool has_reasoning_switch(const TextCodec& codec) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "Hello"}}});
  const auto prompt = [&](bool enabled) {
    return codec.render_chat(messages, nullptr, true,
                             {{"thinking", enabled}, {"enable_thinking", enabled}});
  };
  const auto on = prompt(true);
  const auto off = prompt(false);
  return on.ok() && off.ok() && on.value() != off.value();
}

Json sampling_facts(const SamplingParams& sampling) {
  // Written as the shortest decimal text: 0.6 instead of 0.6000000238418579.
  const auto number = [](float value) { return Json::parse(fmt::format("{}", value)); };
  return {{"temperature", number(sampling.temperature)},
          {"top_p", number(sampling.top_p)},
          {"top_k", sampling.top_k},
          {"min_p", number(sampling.min_p)},
          {"frequency_penalty", number(sampling.frequency_penalty)},
          {"presence_penalty", number(sampling.presence_penalty)},
          {"repetition_penalty", number(sampling.repetition_penalty)}};
}

// The time at which a load is measured.
struct LoadClock {
  double steady_seconds = 0;  // from a clock that is never adjusted
  int64_t unix_seconds = 0;   // seconds since 1970
};

// The answer of /get_load: [{"rid", "dp_rank", "num_reqs", "num_waiting_reqs", "num_tokens",
// "ts_tic"}]. It has one entry, because a process has one engine.
Json load_list(const EngineStats& stats, const LoadClock& now) {
  return Json::array({{{"rid", nullptr},
                       {"dp_rank", 0},
                       {"num_reqs", stats.num_running + stats.num_waiting},
                       {"num_waiting_reqs", stats.num_waiting},
                       {"num_tokens", stats.kv_tokens_used},
                       {"ts_tic", now.steady_seconds}}});
}

// The answer of /v1/loads: {"timestamp", "version", "dp_rank_count", "loads": [..], "aggregate":
// {..}}
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

}  // namespace

ServedModel::ServedModel(const ServerOptions& options, const ServerHealth& health)
    : options_(options), health_(health), weights_(options.weight_version) {}

void ServedModel::serve(std::unique_ptr<Engine> engine, std::unique_ptr<TextCodec> codec,
                        Json configuration, std::vector<ServedAdapter> adapters) {
  engine_ = std::move(engine);
  adapters_.serve(*engine_, std::move(adapters), options_.unix_time);
  codec_ = std::move(codec);
  formats_ = find_answer_formats(*codec_, options_.tool_call_format, options_.reasoning_format,
                                 models::tool_call_format_of(engine_->model_info().architecture));
  log_info(fmt::format("Answers are read for tool calls ({}) and reasoning ({})",
                       parsers::to_string(formats_.tool_calls),
                       parsers::to_string(formats_.reasoning)));
  set_up_answers();
  has_reasoning_switch_ = has_reasoning_switch(*codec_);
  configuration_ = std::move(configuration);
  loaded_at_ = options_.unix_time();
}

void ServedModel::tear_down() {
  codec_.reset();
  adapters_.tear_down();
  engine_.reset();
}

void ServedModel::set_up_answers() {
  const AnswerOptions& answers = options_.answers;
  info_ = engine_->model_info();
  if (!answers.use_generation_config) info_.default_sampling = {};
  if (!answers.preferred_sampling_params.empty()) {
    auto sampling =
        read_sampling_defaults(answers.preferred_sampling_params, info_.default_sampling);
    HEDDLE_CHECK(sampling.ok());  // the options were validated at start-up
    info_.default_sampling = std::move(sampling).value();
  }
  if (answers.max_thinking_tokens && parsers::tags_of(formats_.reasoning).close.empty()) {
    log_warning(fmt::format(
        "The limit of {} tokens of reasoning has no effect: the model's reasoning (format {}) has "
        "no closing tag",
        *answers.max_thinking_tokens, parsers::to_string(formats_.reasoning)));
  }
}

std::string ServedModel::digest() const {
  return weights_digest(weights_, info_, options_.model_path, options_.version);
}

std::vector<std::string> ServedModel::names_for(const HttpRequest& request) const {
  std::vector<std::string> names = options_.served_model_names;
  for (ServedAdapter& adapter : adapters_.list()) names.push_back(std::move(adapter.name));
  std::erase_if(names, [&request](const std::string& name) {
    return !may_use_model(request.key.get(), name);
  });
  return names;
}

HttpResponse ServedModel::server_facts(const HttpRequest& request) const {
  if (!health_.loaded()) return error_response(loading_error(), request);
  const EngineStats stats = engine_->stats();
  Json info = server_info(options_, configuration_, *engine_, stats, health_.word(stats));
  info["weight_version"] = weights_.get().name;
  if (const auto origin = weights_.origin()) {
    info["model_path"] = origin->model_path;
    info["load_format"] = to_string(origin->load_format);
  }
  return json_response(info);
}

HttpResponse ServedModel::model_facts(const HttpRequest& request) const {
  if (!health_.loaded()) return error_response(loading_error(), request);
  if (names_for(request).empty()) {
    return error_response(model_not_found(options_.served_model_names.front()), request);
  }
  const ModelInfo& model = engine_->model_info();
  const std::string& preset = options_.answers.preferred_sampling_params;
  const Json preferred = preset.empty() ? Json() : Json::parse(preset);
  const auto origin = weights_.origin();
  return json_response(
      {{"model_path", origin ? origin->model_path : options_.model_path},
       {"tokenizer_path", options_.model_path},
       {"is_generation", true},
       {"preferred_sampling_params", preferred},
       {"weight_version", weights_.get().name},
       {"architectures", Json::array({model.architecture})},
       {"dtype", model.dtype},
       {"num_parameters", model.num_parameters},
       {"vocab_size", model.vocab_size},
       {"max_model_len", model.context_length},
       {"has_reasoning_parser", formats_.reasoning != parsers::ReasoningFormat::kNone},
       {"has_reasoning_switch", has_reasoning_switch_},
       {"default_sampling", sampling_facts(info_.default_sampling)}});
}

Json ServedModel::model_entry(const std::string& name) const {
  Json entry = {{"id", name},
                {"object", "model"},
                {"created", loaded_at_},
                {"owned_by", "heddle"},
                {"root", name},
                {"parent", nullptr},
                {"max_model_len", engine_->model_info().context_length}};
  const std::vector<std::string>& served = options_.served_model_names;
  if (std::ranges::find(served, name) != served.end()) return entry;
  for (const ServedAdapter& adapter : adapters_.list()) {
    if (adapter.name != name) continue;
    entry["created"] = adapter.loaded_at;
    entry["root"] = adapter.path;
    entry["parent"] = served.front();
  }
  return entry;
}

Json ServedModel::anthropic_model_entry(const std::string& name) const {
  const int64_t context = engine_->model_info().context_length;
  return {{"type", "model"},
          {"id", name},
          {"display_name", name},
          {"created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(loaded_at_))},
          {"max_input_tokens", context},
          {"max_tokens", context}};
}

HttpResponse ServedModel::model_list(const HttpRequest& request) const {
  if (!health_.loaded()) return error_response(loading_error(), request);
  const bool as_anthropic = request.error_form.style == ErrorStyle::kAnthropic;
  Json data = Json::array();
  for (const std::string& name : names_for(request)) {
    data.push_back(as_anthropic ? anthropic_model_entry(name) : model_entry(name));
  }
  if (!as_anthropic) return json_response({{"object", "list"}, {"data", std::move(data)}});
  auto page = anthropic_page_of(request, data);
  if (const auto* const error = std::get_if<ApiError>(&page)) {
    return error_response(*error, request);
  }
  return json_response(std::get<Json>(page));
}

HttpResponse ServedModel::one_model(const HttpRequest& request) const {
  if (!health_.loaded()) return error_response(loading_error(), request);
  const std::string_view id = std::string_view(request.path).substr(kModelPrefix.size());
  for (const std::string& name : names_for(request)) {
    if (name != id) continue;
    const bool as_anthropic = request.error_form.style == ErrorStyle::kAnthropic;
    return json_response(as_anthropic ? anthropic_model_entry(name) : model_entry(name));
  }
  return error_response(model_not_found(id), request);
}

HttpResponse ServedModel::load(const HttpRequest& request, Endpoint endpoint) const {
  if (!health_.loaded()) return error_response(loading_error(), request);
  const EngineStats stats = engine_->stats();
  const std::chrono::duration<double> steady = std::chrono::steady_clock::now().time_since_epoch();
  const LoadClock now{.steady_seconds = steady.count(), .unix_seconds = options_.unix_time()};
  return json_response(endpoint == Endpoint::kLoad
                           ? load_list(stats, now)
                           : load_report(*engine_, stats, options_.version, now));
}

}  // namespace heddle::server
