// SPDX-License-Identifier: Apache-2.0
// CallReader: reads the bodies of API calls on the workers, which it owns. Back on the I/O thread
// it starts the call that a body makes, or answers it where the engine has nothing to compute.
//
// A call that asks for a form of answer that is not compiled yet is read again, on a thread of its
// own where forms are compiled: what it costs delays calls that bring new forms, and no others. The
// API keys whose calls wait for that thread have one form compiled each, in turn.
//
// Threading: confined to the I/O thread; it is made and destroyed by the server's owner, while that
//            thread does not run. Destroying it joins the workers.
// Bounds:    4096 bodies wait, and as many for the compilation of their forms, of one API key 256;
//            others are answered 503 `queue_full`.
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

// Reading a body from here on is large work for a worker, and its memory is given back at once; the
// memory of smaller ones is used again.
inline constexpr size_t kLargeBodyBytes = 1 << 20;

// The parts of the server that calls need; they outlive the reader.
struct CallReaderHost {
  GenerationHost& generations;
  BackgroundResponses& background;
  const ServerHealth& health;    // reading stops early while the server drains
  const ServerOptions& options;  // number of workers, limits of calls

  // The surroundings of a call. Called by the workers; `is_cancelled` outlives the context.
  std::function<CallContext(const HttpRequest& request,
                            const tokenizer::CancellationCheck* is_cancelled)>
      context_of;
};

class CallReader {
 public:
  using Prepare = PrepareResult (*)(const CallContext&, std::string_view body);
  using Answer = AnswerResult (*)(const CallContext&, std::string_view body);

  explicit CallReader(CallReaderHost host);

  // Prepares on a worker, then generates.
  void call(std::shared_ptr<Exchange> exchange, Prepare prepare);

  // Answers from a worker.
  void ask(std::shared_ptr<Exchange> exchange, Answer answer);

  // Runs other work, which is short. False: too much waits.
  [[nodiscard]] bool run_on_worker(std::function<void()> work);

 private:
  // A call from its arrival until it is prepared.
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
  WorkerPool compiler_;  // has a task for each of forms_; outlives the workers, which give it work
  WorkerPool workers_;
};

}  // namespace heddle::server
