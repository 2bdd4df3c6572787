// SPDX-License-Identifier: Apache-2.0
// ApiHandler: decides which part of the server answers which path. It refuses requests that can be
// refused from their head (unknown paths, wrong methods, missing keys), answers short queries
// itself and passes API calls to the workers.
//
// Threading: confined to the I/O thread, except serve(), replace_keys(), begin_drain() and
//            tear_down(), which the server's owner calls. For health() see ServerHealth.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <heddle/engine.h>

#include "server/admin/process_metrics.h"
#include "server/admin/profiler.h"
#include "server/admin/server_health.h"
#include "server/api/native/session_store.h"
#include "server/api/responses/background_responses.h"
#include "server/api/responses/response_store.h"
#include "server/batch/batch_api.h"
#include "server/call/api_adapter.h"
#include "server/call/generation.h"
#include "server/call/request_log.h"
#include "server/call/text_codec.h"
#include "server/call/unused_names.h"
#include "server/call_reader.h"
#include "server/http/http_metrics.h"
#include "server/http/request_gate.h"
#include "server/http/routes.h"
#include "server/http/worker_pool.h"
#include "server/served_model.h"
#include "server/server_options.h"

namespace heddle::server {

class ApiHandler final : public HttpHandler {
 public:
  // `options.unix_time` is set.
  explicit ApiHandler(ServerOptions options);
  ~ApiHandler() override;

  // Sets how functions are run on the I/O thread. Called before the first request.
  void set_post(Post post, PostAfter post_after);

  // Sets the store of files. Called after set_post() and before the first request.
  void set_files(std::unique_ptr<FileStore> files);

  // Sets the log of calls. Called before the first request.
  void set_request_log(std::unique_ptr<RequestLog> log);

  // Serves requests from now on.
  void serve(std::unique_ptr<Engine> engine, std::unique_ptr<TextCodec> codec,
             nlohmann::ordered_json configuration, std::vector<ServedAdapter> adapters);

  ServerHealth& health() { return health_; }

  // Replaces all named keys.
  void replace_keys(std::vector<ApiKey> keys);

  // Refuses requests from now on. Returns the engine for the caller to drain, or null if none is
  // served.
  Engine* begin_drain();

  // Joins the workers and destroys the engine. Called after the I/O thread has stopped.
  void tear_down();

  Admission on_head(HttpRequest& request, HttpHeaders& common_headers) override;
  void on_request(std::shared_ptr<Exchange> exchange) override;
  HttpResponse on_transport_error(const HttpRequest* request, int status,
                                  std::string_view message) override;
  void on_answered(const HttpRequest* request, const Answered& answered) override;

 private:
  [[nodiscard]] CallContext context_of(const HttpRequest& request,
                                       const tokenizer::CancellationCheck* is_cancelled);

  [[nodiscard]] HttpResponse abort_request(const HttpRequest& request);
  [[nodiscard]] HttpResponse change_session(const HttpRequest& request, Endpoint endpoint);
  [[nodiscard]] HttpResponse change_setting(const HttpRequest& request, Endpoint endpoint);
  [[nodiscard]] HttpResponse description(const HttpRequest& request, Endpoint endpoint) const;
  [[nodiscard]] HttpResponse update_weight_version(const HttpRequest& request);
  void inspect(std::shared_ptr<Exchange> exchange);
  [[nodiscard]] HttpResponse metrics(const HttpRequest& request);
  [[nodiscard]] bool is_quiet(std::string_view path) const;

  ServerOptions options_;
  RequestGate gate_;
  Post post_;
  PostAfter post_after_;
  ServerHealth health_;
  ServedModel served_;  // filled in before health_.serve() is called
  std::unique_ptr<EventInbox> inbox_;
  std::unique_ptr<RequestLog> request_log_;
  GenerationHost host_;
  HttpMetrics http_metrics_;
  ProcessMetrics process_metrics_{options_.build};
  std::unique_ptr<BatchApi> batch_api_;
  // Thread for files and batches, so that a slow disk delays no prompt.
  std::unique_ptr<WorkerPool> disk_worker_;
  std::unique_ptr<Profiler> profiler_;
  const std::shared_ptr<ResponseStore> responses_;
  BackgroundResponses background_;
  const std::shared_ptr<SessionStore> sessions_;
  const std::unique_ptr<UnusedNames> unused_names_ = std::make_unique<UnusedNames>();

  std::unique_ptr<CallReader> calls_;
};

}  // namespace heddle::server
