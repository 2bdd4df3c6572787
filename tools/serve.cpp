// SPDX-License-Identifier: Apache-2.0
// heddle serve: a model behind HTTP until somebody says stop.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <sys/resource.h>

#include <heddle/engine.h>

#include "core/log.h"
#include "effective_configuration.h"
#include "options_engine.h"
#include "server/server.h"
#include "server/text_codec.h"
#include "stop_request.h"
#include "subcommand.h"

namespace heddle::tools {
namespace {

struct ServeSettings {
  EngineSettings model;
  server::ServerOptions server;
  std::vector<std::string> served_model_names;
  std::string fair_key = "user";
  std::optional<std::string> api_key;
  bool metrics = true;
};

// Every connection is an open file; the usual soft limit of 1024 is less than a server wants.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// "a b,c" names three.
std::vector<std::string> split_names(const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  for (const std::string& list : lists) {
    for (size_t start = 0; start < list.size();) {
      const size_t end = std::min(list.find_first_of(" ,", start), list.size());
      if (end > start) names.push_back(list.substr(start, end - start));
      start = end + 1;
    }
  }
  return names;
}

Status serve(ServeSettings& settings) {
  HEDDLE_RETURN_IF_ERROR(apply(settings.model));
  raise_file_limit();
  if (settings.api_key && settings.api_key->empty()) {
    return invalid_argument(
        "--api-key is empty, perhaps from a variable that is not set; give a key, or leave the "
        "option out to serve everyone");
  }
  settings.server.api_key = settings.api_key.value_or("");
  HEDDLE_ASSIGN_OR_RETURN(settings.server.fair_key, server::parse_fair_key(settings.fair_key));
  settings.server.served_model_names = split_names(settings.served_model_names);
  settings.server.metrics = settings.model.engine.metrics.enabled = settings.metrics;
  if (!settings.server.served_model_names.empty()) {
    settings.model.engine.metrics.model_name = settings.server.served_model_names.front();
  }
  settings.server.version = HEDDLE_VERSION;
  settings.server.model_path = settings.model.engine.model_dir.string();
  HEDDLE_ASSIGN_OR_RETURN(auto server, server::Server::listen(settings.server));
  StopRequest stop(*server);
  EngineOptions& options = settings.model.engine;
  options.on_load_progress = [&server, draw = options.on_load_progress](int64_t done_bytes,
                                                                        int64_t total_bytes) {
    server->set_load_progress(done_bytes, total_bytes);
    draw(done_bytes, total_bytes);
  };
  HEDDLE_ASSIGN_OR_RETURN(auto engine, Engine::create(options));
  HEDDLE_ASSIGN_OR_RETURN(auto codec,
                          server::make_model_codec(options.model_dir, *engine->tokenizer(),
                                                   settings.model.chat_template));
  server::EffectiveOptions effective = effective_options(options, *engine);
  log_info(log_line(effective));
  stop.loaded();
  server->start_serving(std::move(engine), std::move(codec), std::move(effective));
  stop.wait();
  log_info(
      "Stopping: no new requests are taken, running ones may finish; once more to stop at once");
  const int64_t num_aborted = server->shutdown();
  if (num_aborted > 0) {
    log_warning(fmt::format("{} requests did not finish within {} s and were aborted", num_aborted,
                            settings.server.shutdown_timeout_seconds));
  }
  log_info("Stopped");
  return ok_status();
}

std::function<int()> declare_serve(Options& options) {
  auto settings = std::make_shared<ServeSettings>();
  server::ServerOptions& server = settings->server;
  options.examples(
      "heddle serve                                   the small model of this repository\n"
      "heddle serve MODEL_DIR --port 8000\n"
      "heddle serve MODEL_DIR --host 0.0.0.0 --api-key SECRET --served-model-name my-model\n"
      "curl http://127.0.0.1:30000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "  -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'");
  options.heading("Server");
  options.text("--host", &server.http.host, "Address to listen on");
  options.value("-p,--port", &server.http.port, "Port to listen on; 0: any free one");
  options.value("--served-model-name", &settings->served_model_names,
                "Names clients know the model by, separated by commas; default: the folder's");
  options.flag("--allow-any-model-name,!--no-allow-any-model-name", &server.allow_any_model_name,
               "Serve requests that name another model (default); with no-: answer 404");
  options.value("--api-key", &settings->api_key, "Key that clients must send; default: none");
  options.value("--max-request-bytes", &server.http.max_request_bytes, ranges::kBytes,
                "Largest body of a request");
  options.value("--sse-keepalive-secs", &server.http.stream_keepalive_seconds,
                ranges::kPeriodSeconds,
                "Silence of a stream before a comment keeps it alive; 0: never");
  options.value("--stream-commit-secs", &server.http.stream_commit_seconds, ranges::kSeconds,
                "The latest moment for a queued stream's status line");
  options.value("--shutdown-timeout-secs", &server.shutdown_timeout_seconds,
                ranges::kSecondsOrUnlimited,
                "Time for running requests when stopping; -1: unlimited");
  options.value("--tokenizer-threads", &server.num_workers, ranges::kWorkers,
                "Threads that parse, render and tokenize requests");
  options.value(
      "--fair-key", &settings->fair_key,
      "What tells the tenants of --policy fair apart: user, api-key, header:NAME or none");
  options.flag("--metrics,--enable-metrics,!--no-metrics,!--disable-metrics", &settings->metrics,
               "Count for Prometheus at /metrics (default); with no-: not");
  options.choice("--metrics-names", &settings->model.engine.metrics.names, {"heddle", "sglang"},
                 "heddle_*, or the names dashboards made for SGLang look for");
  declare_engine_options(options, settings->model, ModelArgument::kOptional);
  return [settings] {
    const Status status = serve(*settings);
    if (status.ok()) return 0;
    fmt::print(stderr, "error: {}\n", status.message());
    return kExitFailure;
  };
}

}  // namespace

const Subcommand kServe = {.name = "serve",
                           .summary = "Serve a model over HTTP.",
                           .declare = declare_serve,
                           .alias = "launch_server"};

}  // namespace heddle::tools
