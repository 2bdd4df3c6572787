// SPDX-License-Identifier: Apache-2.0
// CallReader: reads the bodies of API calls on worker threads, which it owns. Back on the I/O
// thread it starts the call that a body describes, or answers it if the engine has nothing to
// compute.
//
// A call whose constraint (a schema, regex or grammar) is not compiled yet is read again on a
// separate compiler thread. So the cost of compilation delays only calls that bring new
// constraints. The API keys whose calls wait for that thread are served in turn, one compilation
// each.
//
// Threading: confined to the I/O thread. The server's owner creates and destroys it while that
//            thread does not run. The destructor joins the workers.
// Bounds:    at most 4096 bodies wait, and 4096 calls wait for compilation, 256 of them from one
//            API key; further calls are answered 503 `queue_full`.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "core/mutex.h"
#include "server/admin/server_health.h"
#include "server/api/responses/background_responses.h"
#include "server/call/api_adapter.h"
#include "server/call/generation.h"
#include "server/http/exchange.h"
#include "server/http/round_robin_queue.h"
#include "server/http/worker_pool.h"
#include "server/server_options.h"

namespace heddle::server {

// Bodies from this size on count as large work for a worker. Their memory is returned to the system
// at once; the memory of smaller bodies is reused.
inline constexpr size_t kLargeBodyBytes = 1 << 20;

// The parts of the server that calls need. They outlive the reader.
struct CallReaderHost {
  GenerationHost& generations;
  BackgroundResponses& background;
  const ServerHealth& health;    // asked while reading, which stops early when the server drains
  const ServerOptions& options;  // the number of workers and the limits of calls are read

  // Makes the context in which a call is prepared. Called by the workers; `is_cancelled` outlives
  // the context.
  std::function<CallContext(const HttpRequest& request,
                            const tokenizer::CancellationCheck* is_cancelled)>
      context_of;
};

class CallReader {
 public:
  using Prepare = PrepareResult (*)(const CallContext&, std::string_view body);
  using Answer = AnswerResult (*)(const CallContext&, std::string_view body);

  explicit CallReader(CallReaderHost host);

  // Prepares the call on a worker, then starts its generation.
  void call(std::shared_ptr<Exchange> exchange, Prepare prepare);

  // Answers the request on a worker, without a generation.
  void ask(std::shared_ptr<Exchange> exchange, Answer answer);

  // Runs other short work on a worker. Returns false if too much is queued.
  [[nodiscard]] bool run_on_worker(std::function<void()> work);

 private:
  // A call, from its arrival until it is prepared.
  struct Reading;

  void read(std::shared_ptr<Reading> reading, bool may_compile);
  [[nodiscard]] bool wait_for_form(const std::shared_ptr<Reading>& reading)
      HEDDLE_EXCLUDES(forms_mutex_);
  void read_with_form() HEDDLE_EXCLUDES(forms_mutex_);
  void start(std::shared_ptr<Reading> reading);
  [[nodiscard]] tokenizer::CancellationCheck cancellation_of(const Exchange& exchange) const;
  void on_worker(const std::shared_ptr<Exchange>& exchange, std::function<void()> work);

  const CallReaderHost host_;
  Mutex forms_mutex_;
  RoundRobinQueue<std::shared_ptr<Reading>> forms_ HEDDLE_GUARDED_BY(forms_mutex_);
  WorkerPool compiler_;  // has one task for each entry of forms_; outlives the workers, which
                         // submit these tasks
  WorkerPool workers_;
};

}  // namespace heddle::server
