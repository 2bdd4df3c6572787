// SPDX-License-Identifier: Apache-2.0
// ApiHandler: which path does what. Refuses what can be refused from a request's head (unknown
// paths, wrong methods, missing keys), answers small questions itself and sends API calls to the
// workers.
//
// Threading: confined to the I/O thread, but for serve(), replace_keys(), begin_drain() and
//            tear_down(), which the server's owner calls. health() says its own.
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
  // `options` has a clock.
  explicit ApiHandler(ServerOptions options);
  ~ApiHandler() override;

  // Before the first request: how work reaches the I/O thread.
  void set_post(Post post, PostAfter post_after);

  // Likewise, after set_post(): where files are.
  void set_files(std::unique_ptr<FileStore> files);

  // Likewise: where calls are logged.
  void set_request_log(std::unique_ptr<RequestLog> log);

  // Requests are served from now on.
  void serve(std::unique_ptr<Engine> engine, std::unique_ptr<TextCodec> codec,
             nlohmann::ordered_json configuration);

  ServerHealth& health() { return health_; }

  // Takes the place of all named keys.
  void replace_keys(std::vector<ApiKey> keys);

  // Requests are refused from now on. Returns the engine, if there is one, for the caller to drain.
  Engine* begin_drain();

  // Joins the workers and destroys the engine. The I/O thread has stopped.
  void tear_down();

  Admission on_head(HttpRequest& request, HttpHeaders& common_headers) override;
  void on_request(std::shared_ptr<Exchange> exchange) override;
  HttpResponse on_transport_error(const HttpRequest* request, int status,
                                  std::string_view message) override;
  void on_answered(const HttpRequest* request, const Answered& answered) override;

 private:
  [[nodiscard]] CallContext context_of(const HttpRequest& request,
                                       const tokenizer::CancellationCheck* is_cancelled) const;

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
  ServedModel served_;  // complete before health_.serve()
  std::unique_ptr<EventInbox> inbox_;
  std::unique_ptr<RequestLog> request_log_;
  GenerationHost host_;
  HttpMetrics http_metrics_;
  ProcessMetrics process_metrics_{options_.build};
  std::unique_ptr<BatchApi> batch_api_;
  std::unique_ptr<WorkerPool> disk_worker_;  // of files and batches: a slow disk delays no prompt
  std::unique_ptr<Profiler> profiler_;
  const std::shared_ptr<ResponseStore> responses_;
  BackgroundResponses background_;
  const std::shared_ptr<SessionStore> sessions_;
  const std::unique_ptr<UnusedNames> unused_names_ = std::make_unique<UnusedNames>();

  std::unique_ptr<CallReader> calls_;
};

}  // namespace heddle::server
