// SPDX-License-Identifier: Apache-2.0
#include "server/served_model.h"

#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/log.h"
#include "server/api_error.h"
#include "server/json_text.h"
#include "server/key_ring.h"
#include "server/routes.h"
#include "server/sampling_fields.h"
#include "server/server_info.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

ServedModel::ServedModel(const ServerOptions& options, const ServerHealth& health)
    : options_(options), health_(health), weights_(options.weight_version) {}

void ServedModel::serve(std::unique_ptr<Engine> engine, std::unique_ptr<TextCodec> codec,
                        Json configuration) {
  engine_ = std::move(engine);
  codec_ = std::move(codec);
  formats_ = find_answer_formats(*codec_, options_.tool_call_format, options_.reasoning_format);
  log_info(fmt::format("Answers are read for tool calls ({}) and reasoning ({})",
                       parsers::to_string(formats_.tool_calls),
                       parsers::to_string(formats_.reasoning)));
  set_up_answers();
  configuration_ = std::move(configuration);
  loaded_at_ = options_.unix_time();
}

void ServedModel::tear_down() {
  codec_.reset();
  engine_.reset();
}

void ServedModel::set_up_answers() {
  const AnswerOptions& answers = options_.answers;
  info_ = engine_->model_info();
  if (!answers.use_generation_config) info_.default_sampling = {};
  if (!answers.preferred_sampling_params.empty()) {
    auto sampling =
        read_sampling_defaults(answers.preferred_sampling_params, info_.default_sampling);
    HEDDLE_CHECK(sampling.ok());  // was validated at start-up
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
       {"has_reasoning_parser", formats_.reasoning != parsers::ReasoningFormat::kNone}});
}

Json ServedModel::model_entry(const std::string& name) const {
  return {{"id", name},
          {"object", "model"},
          {"created", loaded_at_},
          {"owned_by", "heddle"},
          {"root", name},
          {"parent", nullptr},
          {"max_model_len", engine_->model_info().context_length}};
}

HttpResponse ServedModel::model_list(const HttpRequest& request) const {
  if (!health_.loaded()) return error_response(loading_error(), request);
  Json data = Json::array();
  for (const std::string& name : names_for(request)) data.push_back(model_entry(name));
  return json_response({{"object", "list"}, {"data", std::move(data)}});
}

HttpResponse ServedModel::one_model(const HttpRequest& request) const {
  if (!health_.loaded()) return error_response(loading_error(), request);
  const std::string_view id = std::string_view(request.path).substr(kModelPrefix.size());
  for (const std::string& name : names_for(request)) {
    if (name == id) return json_response(model_entry(name));
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
