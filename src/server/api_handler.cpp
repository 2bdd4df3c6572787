// SPDX-License-Identifier: Apache-2.0
#include "server/api_handler.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/printable.h"
#include "server/admin/adapter_control.h"
#include "server/admin/api_description.h"
#include "server/admin/dashboard.h"
#include "server/admin/engine_control.h"
#include "server/admin/inspection.h"
#include "server/admin/runtime_settings.h"
#include "server/admin/weight_update.h"
#include "server/api/anthropic/anthropic_messages.h"
#include "server/api/native/native_generate.h"
#include "server/api/native/parse_answer.h"
#include "server/api/native/session_fields.h"
#include "server/api/native/tokenize.h"
#include "server/api/ollama/ollama.h"
#include "server/api/openai/chat_completions.h"
#include "server/api/openai/completions.h"
#include "server/api/responses/input_items.h"
#include "server/api/responses/responses.h"
#include "server/http/json_text.h"
#include "server/http/key_ring.h"
#include "server/http/routes.h"
#include "server/storage/stored_texts.h"

namespace heddle::server {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxQueuedDiskWork = 1024;

// SageMaker's only route accepts the body of any of three routes: with `messages`, with `prompt`,
// or that of /generate.
PrepareResult prepare_invocation(const CallContext& context, std::string_view body) {
  Json object;
  if (auto error = parse_json_object(body, object)) return *error;
  const bool is_chat = object.contains("messages");
  const bool is_completion = object.contains("prompt");
  object = nullptr;
  if (is_chat) return prepare_chat(context, body);
  return is_completion ? prepare_completions(context, body) : prepare_generate(context, body);
}

}  // namespace

ApiHandler::ApiHandler(ServerOptions options)
    : options_(std::move(options)),
      gate_(options_),
      served_(options_, health_),
      responses_(std::make_shared<ResponseStore>(options_.unix_time, options_.storage_share())),
      background_(host_, responses_, [this](const HttpRequest& own) { gate_.forget(own); }),
      sessions_(std::make_shared<SessionStore>(options_.storage_share())),
      calls_(std::make_unique<CallReader>(
          CallReaderHost{.generations = host_,
                         .background = background_,
                         .health = health_,
                         .options = options_,
                         .context_of = [this](const HttpRequest& request,
                                              const tokenizer::CancellationCheck* is_cancelled) {
                           return context_of(request, is_cancelled);
                         }})) {}

ApiHandler::~ApiHandler() = default;

void ApiHandler::set_post(Post post, PostAfter post_after) {
  post_ = std::move(post);
  post_after_ = std::move(post_after);
  inbox_ = std::make_unique<EventInbox>(post_);
  host_.threads = {
      .run_on_worker =
          [this](std::function<void()> work) { return calls_->run_on_worker(std::move(work)); },
      .post = post_};
  std::error_code ignored;
  profiler_ = std::make_unique<Profiler>(options_.profile_path.empty()
                                             ? std::filesystem::temp_directory_path(ignored)
                                             : std::filesystem::path(options_.profile_path),
                                         host_.threads, options_.unix_time);
  host_.weight_version_after = [this](int64_t num_weight_updates) {
    return served_.weights().name_after(num_weight_updates);
  };
  host_.on_tokens = [this](const ApiKey& key, int64_t num_tokens) {
    gate_.keys().charge_tokens(key, num_tokens, std::chrono::steady_clock::now());
  };
}

void ApiHandler::set_files(std::unique_ptr<FileStore> files) {
  disk_worker_ = std::make_unique<WorkerPool>(1, kMaxQueuedDiskWork);
  batch_api_ = std::make_unique<BatchApi>(
      BatchHost{
          .threads = {.run_on_worker =
                          [this](std::function<void()> work) {
                            return disk_worker_->submit(WorkSize::kSmall, std::move(work));
                          },
                      .post = post_},
          .post_after = post_after_,
          .dispatch = [this](std::shared_ptr<Exchange> own) { on_request(std::move(own)); },
          .engine = [this]() -> Engine& { return served_.engine(); },
          .unix_time = options_.unix_time,
          .draining = [this] { return health_.draining(); },
          .model_names = [this] { return options_.served_model_names; },
          .find_key = [this](const std::string& name) { return gate_.keys().find_named(name); },
          .share = options_.storage_share()},
      std::move(files));
}

void ApiHandler::set_request_log(std::unique_ptr<RequestLog> log) {
  request_log_ = std::move(log);
  host_.request_log = request_log_.get();
}

void ApiHandler::serve(std::unique_ptr<Engine> engine, std::unique_ptr<TextCodec> codec,
                       Json configuration, std::vector<ServedAdapter> adapters) {
  if (options_.served_model_names.empty()) {
    options_.served_model_names.push_back(engine->model_info().name);
  }
  served_.serve(std::move(engine), std::move(codec), std::move(configuration), std::move(adapters));
  host_.engine = &served_.engine();
  host_.inbox = inbox_.get();
  health_.serve(served_.engine());
  post_([this] { batch_api_->resume(); });
}

void ApiHandler::replace_keys(std::vector<ApiKey> keys) {
  post_([this, keys = std::move(keys)]() mutable { gate_.keys().replace_named(std::move(keys)); });
}

Engine* ApiHandler::begin_drain() {
  health_.begin_drain();
  host_.draining = true;
  return host_.engine;
}

void ApiHandler::tear_down() {
  calls_.reset();
  disk_worker_.reset();
  served_.tear_down();
}

Admission ApiHandler::on_head(HttpRequest& request, HttpHeaders& common_headers) {
  gate_.identify(request, common_headers);
  const Route* route = find_route(request.path);
  return {.refusal = gate_.refusal_of(request, route, health_.closed()),
          .max_body_bytes = route != nullptr ? route->max_body_bytes : kNoBody};
}

void ApiHandler::on_request(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  const Route* route = find_route(request.path);
  if (route == nullptr) return;  // unknown path: on_head() has refused the request
  switch (route->endpoint) {
    case Endpoint::kHealth:
      exchange->respond(health_.health());
      break;
    case Endpoint::kHealthGenerate:
      health_.check_by_generating(post_, post_after_, std::move(exchange));
      break;
    case Endpoint::kServerInfo:
      exchange->respond(served_.server_facts(request));
      break;
    case Endpoint::kReady:
      exchange->respond(health_.readiness(request.query_value("strict") == "1"));
      break;
    case Endpoint::kLive:
      exchange->respond(json_response({{"status", "alive"}}));
      break;
    case Endpoint::kModelInfo:
      exchange->respond(served_.model_facts(request));
      break;
    case Endpoint::kModels:
      exchange->respond(served_.model_list(request));
      break;
    case Endpoint::kOneModel:
      exchange->respond(served_.one_model(request));
      break;
    case Endpoint::kChat:
      calls_->call(std::move(exchange), prepare_chat);
      break;
    case Endpoint::kCompletions:
      calls_->call(std::move(exchange), prepare_completions);
      break;
    case Endpoint::kGenerate:
      calls_->call(std::move(exchange), prepare_generate);
      break;
    case Endpoint::kTokenize:
      calls_->ask(std::move(exchange), answer_tokenize);
      break;
    case Endpoint::kDetokenize:
      calls_->ask(std::move(exchange), answer_detokenize);
      break;
    case Endpoint::kMetrics:
      exchange->respond(metrics(request));
      break;
    case Endpoint::kFlushCache:
      flush_cache(served_.engine(), post_, std::move(exchange));
      break;
    case Endpoint::kPause:
      pause_generation(served_.engine(), post_, std::move(exchange));
      break;
    case Endpoint::kContinue:
      continue_generation(served_.engine(), post_, std::move(exchange));
      break;
    case Endpoint::kRoot:
      exchange->respond(wants_page(request)
                            ? dashboard_page("index.html", request)
                            : HttpResponse{.content_type = "text/plain; charset=utf-8",
                                           .headers = {{"Vary", "Accept"}},
                                           .body = "Ollama is running"});
      break;
    case Endpoint::kDashboard:
      exchange->respond(dashboard_page(request.path.substr(kDashboardPrefix.size()), request));
      break;
    case Endpoint::kInspect:
      inspect(std::move(exchange));
      break;
    case Endpoint::kMessages:
      calls_->call(std::move(exchange), prepare_messages);
      break;
    case Endpoint::kCountTokens:
      calls_->ask(std::move(exchange), answer_count_tokens);
      break;
    case Endpoint::kResponses:
      calls_->call(std::move(exchange), prepare_responses);
      break;
    case Endpoint::kResponseTokens:
      calls_->ask(std::move(exchange), answer_response_tokens);
      break;
    case Endpoint::kOneResponse:
      if (asks_for_input_items(request) && health_.loaded()) {
        calls_->ask(std::move(exchange), answer_input_items);
      } else {
        background_.answer(exchange);
      }
      break;
    case Endpoint::kOllamaChat:
      calls_->call(std::move(exchange), prepare_ollama_chat);
      break;
    case Endpoint::kOllamaGenerate:
      calls_->call(std::move(exchange), prepare_ollama_generate);
      break;
    case Endpoint::kOllamaModels:
    case Endpoint::kOllamaRunning:
      exchange->respond(
          json_response(ollama_models(served_.engine(), served_.names_for(request),
                                      {.digest = served_.digest(),
                                       .loaded_at = served_.loaded_at(),
                                       .running = route->endpoint == Endpoint::kOllamaRunning})));
      break;
    case Endpoint::kOllamaShow:
      calls_->ask(std::move(exchange), answer_ollama_show);
      break;
    case Endpoint::kOllamaVersion:
      exchange->respond(json_response({{"version", kServedOllamaVersion}}));
      break;
    case Endpoint::kVersion:
      exchange->respond(json_response({{"version", options_.version}}));
      break;
    case Endpoint::kInvocations:
      calls_->call(std::move(exchange), prepare_invocation);
      break;
    case Endpoint::kVertex:
      calls_->call(std::move(exchange), prepare_vertex);
      break;
    case Endpoint::kLoad:
    case Endpoint::kLoads:
      exchange->respond(served_.load(request, route->endpoint));
      break;
    case Endpoint::kWeightVersion:
      exchange->respond(json_response({{"weight_version", served_.weights().get().name}}));
      break;
    case Endpoint::kUpdateWeightVersion:
      exchange->respond(update_weight_version(request));
      break;
    case Endpoint::kUpdateWeights:
      update_weights(served_.engine(), post_, served_.weights(), std::move(exchange));
      break;
    case Endpoint::kLoadAdapter:
      calls_->ask(std::move(exchange), answer_load_adapter);
      break;
    case Endpoint::kUnloadAdapter:
      calls_->ask(std::move(exchange), answer_unload_adapter);
      break;
    case Endpoint::kParseFunctionCall:
      calls_->ask(std::move(exchange), answer_parse_function_call);
      break;
    case Endpoint::kSeparateReasoning:
      calls_->ask(std::move(exchange), answer_separate_reasoning);
      break;
    case Endpoint::kFiles:
      batch_api_->files(std::move(exchange));
      break;
    case Endpoint::kOneFile:
      batch_api_->one_file(std::move(exchange));
      break;
    case Endpoint::kBatches:
      batch_api_->batches(exchange);
      break;
    case Endpoint::kOneBatch:
      batch_api_->one_batch(std::move(exchange));
      break;
    case Endpoint::kStartProfile:
      profiler_->start(served_.engine(), exchange);
      break;
    case Endpoint::kStopProfile:
      profiler_->stop(served_.engine(), exchange);
      break;
    case Endpoint::kConfigureLogging:
    case Endpoint::kSetInternalState:
    case Endpoint::kSlowDown:
      exchange->respond(change_setting(request, route->endpoint));
      break;
    case Endpoint::kOpenSession:
    case Endpoint::kCloseSession:
      exchange->respond(change_session(request, route->endpoint));
      break;
    case Endpoint::kOpenApi:
    case Endpoint::kDocs:
      exchange->respond(description(request, route->endpoint));
      break;
    case Endpoint::kNotServed:  // on_head() has refused the request
      break;
    case Endpoint::kAbort:
      exchange->respond(abort_request(request));
      break;
  }
}

HttpResponse ApiHandler::on_transport_error(const HttpRequest* request, int status,
                                            std::string_view message) {
  const char* code = "invalid_value";
  if (status == 408) code = "request_timeout";
  if (status == 413 || status == 431) code = "request_too_large";
  if (status == 501) code = "not_supported";
  if (status == 503) code = "queue_full";
  const ApiError error{.status = status,
                       .code = code,
                       .message = std::string(message),
                       .retry_after_seconds = status == 503 ? 4 : 0};
  return request != nullptr ? error_response(error, *request) : error_response(error);
}

void ApiHandler::on_answered(const HttpRequest* request, const Answered& answered) {
  const Route* route = request != nullptr ? find_route(request->path) : nullptr;
  if (request != nullptr) gate_.forget(*request);
  http_metrics_.on_answered(route != nullptr ? route->path : std::string_view(), answered);
  std::string line = fmt::format(
      "{} {} {:.1f} ms {} bytes",
      request != nullptr ? fmt::format("{} {}", request->method, printable(request->path, 200))
                         : "no request",
      answered.status, answered.seconds * 1e3, answered.bytes);
  if (request != nullptr && !request->speed.empty()) {
    line += fmt::format(" ({})", request->speed);
  }
  const bool knows_client = request != nullptr && !request->client.empty();
  line += fmt::format(" {} {}", knows_client ? request->client : "-",
                      request != nullptr ? request->id : "-");
  const bool is_probe = route != nullptr && route->access == Access::kOpen && answered.read_whole;
  const bool is_polled = route != nullptr && route->endpoint == Endpoint::kInspect;
  if (is_probe || is_polled || (request != nullptr && is_quiet(request->path))) {
    log_debug(line);  // at level debug, because health probes arrive every second
  } else {
    log_info(line);
  }
}

CallContext ApiHandler::context_of(const HttpRequest& request,
                                   const tokenizer::CancellationCheck* is_cancelled) {
  WeightVersion::Named weights = served_.weights().get();
  return {.model = served_.info(),
          .engine = &served_.engine(),
          .codec = served_.codec(),
          .formats = served_.formats(),
          .served_names = options_.served_model_names,
          .allow_any_model_name = options_.allow_any_model_name,
          .adapters = &served_.adapters(),
          .head = request,
          .fair_key = options_.fair_key,
          .isolate_tenants = options_.isolate_tenants,
          .responses = responses_,
          .sessions = sessions_,
          .stored_texts = batch_api_ == nullptr
                              ? nullptr
                              : std::make_shared<StoredTexts>(batch_api_->file_store(), request),
          .is_cancelled = is_cancelled,
          .id = request.id,
          .created = options_.unix_time(),
          .weight_version = std::move(weights.name),
          .system_fingerprint = "fp_" + served_.digest().substr(0, 10),
          .num_weight_updates = weights.num_updates,
          .answers = options_.answers,
          .unused_names = unused_names_.get()};
}

// Served even while draining, so that remaining requests can be aborted.
HttpResponse ApiHandler::abort_request(const HttpRequest& request) {
  const auto order = read_abort(request.body);
  if (const auto* const error = std::get_if<ApiError>(&order)) {
    return error_response(*error, request);
  }
  const auto& [id, all] = std::get<AbortOrder>(order);
  const bool steers = gate_.may_steer(request);
  if (all && !steers) {
    return error_response({.status = 403,
                           .code = "admin_key_required",
                           .message = "Only the admin key may abort the requests of all.",
                           .param = "abort_all"},
                          request);
  }
  // Senders who may not control the server can only abort their own requests.
  const auto holder = steers ? std::nullopt : std::optional(holder_of(request.key));
  if (all) {
    Generation::abort_all(host_);
  } else if (!Generation::abort(host_, id, holder)) {
    return error_response({.status = 503,
                           .code = "queue_full",
                           .message = fmt::format("{} aborts wait for requests to be read. Retry "
                                                  "later.",
                                                  EarlyAborts::kMaxIds),
                           .retry_after_seconds = 4},
                          request);
  }
  return json_response({{"status", "ok"}});
}

HttpResponse ApiHandler::change_session(const HttpRequest& request, Endpoint endpoint) {
  std::string holder = holder_of(request.key);
  const auto changed =
      endpoint == Endpoint::kOpenSession
          ? open_session(request.body, std::move(holder), options_.unix_time(), *sessions_)
          : close_session(request.body, holder, *sessions_);
  if (const auto* const error = std::get_if<ApiError>(&changed)) {
    return error_response(*error, request);
  }
  return json_response(std::get<Json>(changed));
}

HttpResponse ApiHandler::change_setting(const HttpRequest& request, Endpoint endpoint) {
  std::variant<Json, ApiError> changed;
  if (endpoint == Endpoint::kConfigureLogging) {
    changed = configure_logging(request.body, *request_log_);
  } else if (endpoint == Endpoint::kSetInternalState) {
    changed = set_internal_state(request.body);
  } else {
    changed = slow_down(request.body, served_.engine());
  }
  if (const auto* const error = std::get_if<ApiError>(&changed)) {
    return error_response(*error, request);
  }
  return json_response(std::get<Json>(changed));
}

HttpResponse ApiHandler::description(const HttpRequest& request, Endpoint endpoint) const {
  if (!options_.api_docs) {
    return error_response({.status = 404,
                           .code = "not_found",
                           .message = "This server does not describe its routes."},
                          request);
  }
  if (endpoint == Endpoint::kOpenApi) {
    return json_response(openapi_description(options_.version));
  }
  return {.content_type = "text/html; charset=utf-8",
          .headers = {},
          .body = docs_page(options_.version)};
}

HttpResponse ApiHandler::update_weight_version(const HttpRequest& request) {
  auto order = read_weight_version(request.body);
  if (const auto* const error = std::get_if<ApiError>(&order)) {
    return error_response(*error, request);
  }
  auto& [name, abort_all] = std::get<WeightVersionOrder>(order);
  served_.weights().rename(name);
  if (abort_all) Generation::abort_all(host_);
  return json_response({{"success", true},
                        {"message", fmt::format("The weight version is {}.", name)},
                        {"new_version", name}});
}

void ApiHandler::inspect(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  if (!health_.loaded()) return exchange->respond(error_response(loading_error(), request));
  auto options = read_inspection(context_of(request, nullptr), request.body);
  if (const auto* const error = std::get_if<ApiError>(&options)) {
    return exchange->respond(error_response(*error, request));
  }
  server::inspect(served_.engine(), served_.codec(), host_.threads,
                  std::move(std::get<InspectionOptions>(options)), std::move(exchange));
}

HttpResponse ApiHandler::metrics(const HttpRequest& request) {
  if (!options_.metrics) {
    return error_response(
        {.status = 404, .code = "not_found", .message = "Metrics are off on this server."},
        request);
  }
  return {
      .content_type = std::string(kMetricsContentType),
      .headers = {},
      .body = (health_.loaded() ? served_.engine().metrics_text() + served_.codec().metrics_text()
                                : "") +
              http_metrics_.to_text() + process_metrics_.to_text()};
}

bool ApiHandler::is_quiet(std::string_view path) const {
  return std::ranges::any_of(
      options_.quiet_paths, [path](const std::string& prefix) { return path.starts_with(prefix); });
}

}  // namespace heddle::server
