// SPDX-License-Identifier: Apache-2.0
// heddle serve: serves a model over HTTP until a signal stops it.
#include <csignal>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "core/log.h"
#include "server/call/text_codec.h"
#include "server/http/json_text.h"
#include "server/server.h"
#include "tools/cli/adapter_option.h"
#include "tools/cli/option_names.h"
#include "tools/cli/options_serve.h"
#include "tools/cli/stop_request.h"
#include "tools/cli/subcommand.h"
#include "tools/effective_configuration.h"

namespace heddle::tools {
namespace {

Status serve(ServeSettings& settings) {
  // The request log then sees an error when the reader of its lines has ended.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // writing a file beyond `ulimit -f` then fails as on a full disk
  HEDDLE_RETURN_IF_ERROR(apply(settings));
  HEDDLE_ASSIGN_OR_RETURN(auto server, server::Server::listen(settings.server));
  settings.server.http.port = server->port();
  StopRequest stop(*server);
  EngineOptions& options = settings.model.engine;
  options.on_load_progress = [&server, draw = options.on_load_progress](int64_t done_bytes,
                                                                        int64_t total_bytes) {
    server->set_load_progress(done_bytes, total_bytes);
    draw(done_bytes, total_bytes);
  };
  options.on_failure = [&stop] { stop.engine_failed(); };
  HEDDLE_ASSIGN_OR_RETURN(auto engine, create_engine(options));
  // Valid until the server is shut down, which destroys the engine.
  const Engine& serving = *engine;
  HEDDLE_ASSIGN_OR_RETURN(auto codec,
                          server::make_model_codec(options.model_dir, *engine->tokenizer(),
                                                   settings.model.chat_template));
  HEDDLE_ASSIGN_OR_RETURN(auto loaded, load_adapters(settings.adapters, *engine));
  std::vector<server::ServedAdapter> adapters;
  for (LoadedAdapter& one : loaded) {
    adapters.push_back({.name = std::move(one.argument.name),
                        .path = one.argument.folder.string(),
                        .adapter = std::move(one.adapter)});
  }
  nlohmann::ordered_json configuration = effective_configuration(settings, *engine);
  log_debug("Configuration: " + server::dump_json(configuration));
  stop.loaded();
  server->start_serving(std::move(engine), std::move(codec),
                        without_secrets(std::move(configuration)), std::move(adapters));
  const int signal = stop.wait();
  const Status health = signal == 0 ? serving.health() : ok_status();
  if (signal == SIGTERM && settings.shutdown_drain_delay_seconds > 0) {
    log_info(fmt::format("Stopping in {} s: /readyz says 503, and requests are still taken",
                         settings.shutdown_drain_delay_seconds));
    server->announce_shutdown(settings.shutdown_drain_delay_seconds);
  }
  log_info(
      "Stopping: no new requests are taken, running ones may finish; once more to stop at once");
  const int64_t num_aborted = server->shutdown();
  if (num_aborted > 0) {
    log_warning(fmt::format("{} requests did not finish within {} s and were aborted", num_aborted,
                            settings.server.shutdown_timeout_seconds));
  }
  log_info("Stopped");
  return health.with_context("the engine stopped");
}

std::function<int()> declare_serve(Options& options) {
  auto settings = std::make_shared<ServeSettings>();
  options.examples(
      "heddle serve                                   the small model of this repository\n"
      "heddle serve MODEL_DIR --port 8000\n"
      "heddle serve MODEL_DIR --host 0.0.0.0 --api-key SECRET --served-model-name my-model\n"
      "curl http://127.0.0.1:30000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "  -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'");
  declare_serve_options(options, *settings);
  return [settings] {
    const Status status = serve(*settings);
    return status.ok() ? 0 : report_failure(status);
  };
}

}  // namespace

const Subcommand kServe = {.name = "serve",
                           .summary = "Serve a model over HTTP.",
                           .declare = declare_serve,
                           .alias = "launch_server"};

}  // namespace heddle::tools
