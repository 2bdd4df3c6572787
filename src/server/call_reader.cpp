// SPDX-License-Identifier: Apache-2.0
#include "server/call_reader.h"

#include <exception>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <malloc.h>

#include "server/api/anthropic/anthropic_messages.h"
#include "server/api/native/native_generate.h"
#include "server/api/ollama/ollama.h"
#include "server/api/openai/completions.h"
#include "server/call/request_log.h"
#include "server/call/sampling_fields.h"
#include "server/http/key_ring.h"

namespace heddle::server {
namespace {

constexpr size_t kMaxQueuedWork = 4096;
constexpr size_t kMaxQueuedForms = 256;  // calls of one API key that may wait for compilation
constexpr int kCompilerNiceness = 10;

// Returns freed memory to the system after a large body. Its values are many and small, and the
// allocator keeps their memory when they are freed. Measured: after bodies of 10 to 60 MB and chats
// of 300,000 messages the server, which starts at 52 MiB, has 78 MiB; without this 464. Other
// threads wait for a moment if they allocate meanwhile. Cost: milliseconds.
void return_memory_of(const HttpRequest& read) {
  if (read.body.size() >= kLargeBodyBytes) malloc_trim(0);
}

LimitedFields limited_fields(PrepareResult (*prepare)(const CallContext&, std::string_view)) {
  if (prepare == prepare_completions) return {.logprobs = "logprobs"};
  if (prepare == prepare_messages) return {.stop = "stop_sequences"};
  if (prepare == prepare_ollama_chat || prepare == prepare_ollama_generate) {
    return {.stop = "options.stop"};
  }
  if (prepare == prepare_generate || prepare == prepare_vertex) {
    return {.stop = "sampling_params.stop", .logprobs = "top_logprobs_num"};
  }
  return {};
}

}  // namespace

CallReader::CallReader(CallReaderHost host)
    : host_(std::move(host)),
      forms_(kMaxQueuedWork, kMaxQueuedForms),
      compiler_(1, kMaxQueuedWork, kCompilerNiceness),
      workers_(host_.options.num_workers, kMaxQueuedWork) {}

bool CallReader::run_on_worker(std::function<void()> work) {
  return workers_.submit(WorkSize::kSmall, std::move(work));
}

// Stops a worker's encoding once its client has disconnected or the server drains.
tokenizer::CancellationCheck CallReader::cancellation_of(const Exchange& exchange) const {
  return [this, &exchange] { return exchange.gone() || host_.health.draining(); };
}

void CallReader::on_worker(const std::shared_ptr<Exchange>& exchange, std::function<void()> work) {
  const bool is_large = exchange->request().body.size() >= kLargeBodyBytes;
  if (workers_.submit(is_large ? WorkSize::kLarge : WorkSize::kSmall, std::move(work))) return;
  exchange->respond(error_response(
      {.status = 503,
       .code = "queue_full",
       .message = fmt::format("{} requests wait to be read. Retry later.", kMaxQueuedWork),
       .retry_after_seconds = 4},
      exchange->request()));
}

struct CallReader::Reading {
  std::shared_ptr<Exchange> exchange;
  Prepare prepare;
  std::shared_ptr<const EarlyAborts::Call> arrived;
  PrepareResult prepared = ApiError{};
};

void CallReader::call(std::shared_ptr<Exchange> exchange, Prepare prepare) {
  auto reading = std::make_shared<Reading>(Reading{
      .exchange = exchange,
      .prepare = prepare,
      .arrived = host_.generations.early_aborts.arrive(holder_of(exchange->request().key))});
  on_worker(exchange, [this, reading = std::move(reading)]() mutable {
    read(std::move(reading), /*may_compile=*/false);
  });
}

void CallReader::read(std::shared_ptr<Reading> reading, bool may_compile) {
  const Exchange& exchange = *reading->exchange;
  const HttpRequest& request = exchange.request();
  bool lacks_form = false;
  try {
    if (!exchange.gone()) {
      const tokenizer::CancellationCheck is_cancelled = cancellation_of(exchange);
      CallContext context = host_.context_of(request, &is_cancelled);
      if (!may_compile) context.lacks_form = &lacks_form;
      reading->prepared = reading->prepare(context, request.body);
      auto* const call = std::get_if<PreparedCall>(&reading->prepared);
      if (call != nullptr && !lacks_form) {
        call->num_weight_updates = context.num_weight_updates;
        if (auto error = check_limits(call->requests, host_.options.answers,
                                      limited_fields(reading->prepare))) {
          reading->prepared = *error;
        } else {
          call->logged = host_.generations.request_log->received({
              .id = call->id,
              .path = request.path,
              .model = context.served_names.front(),
              .no_logs = call->no_logs,
              .requests = call->requests,
              .codec = context.codec,
              .arrived_at = request.arrived_at,
          });
        }
      }
    }
  } catch (const std::exception& failure) {  // mostly out of memory
    reading->prepared = error_from_status(internal_error(failure.what()), request.id);
  }
  if (lacks_form) {
    if (wait_for_form(reading)) {
      // The last reference to a call must end on the I/O thread, whichever thread holds it.
      host_.generations.threads.post([reading = std::move(reading)] {});
      return;
    }
    reading->prepared =
        ApiError{.status = 503,
                 .code = "queue_full",
                 .message = fmt::format("{} requests wait for the compilation of the forms of "
                                        "their answers. Retry later.",
                                        kMaxQueuedForms),
                 .retry_after_seconds = 4};
  }
  return_memory_of(request);
  host_.generations.threads.post(
      [this, reading = std::move(reading)]() mutable { start(std::move(reading)); });
}

bool CallReader::wait_for_form(const std::shared_ptr<Reading>& reading) {
  const MutexLock lock(forms_mutex_);
  // The pool's queue is as long as this one, so it refuses a task only when it is ending.
  return forms_.push(holder_of(reading->exchange->request().key), reading) &&
         compiler_.submit(WorkSize::kSmall, [this] { read_with_form(); });
}

void CallReader::read_with_form() {
  std::optional<std::shared_ptr<Reading>> next;
  {
    const MutexLock lock(forms_mutex_);
    next = forms_.pop();
  }
  if (next) read(*std::move(next), /*may_compile=*/true);
}

void CallReader::start(std::shared_ptr<Reading> reading) {
  const std::shared_ptr<Exchange>& exchange = reading->exchange;
  exchange->release_body();
  if (const auto* error = std::get_if<ApiError>(&reading->prepared)) {
    exchange->respond(error_response(*error, exchange->request()));
  } else if (auto* const answer = std::get_if<JsonAnswer>(&reading->prepared)) {
    send_json(host_.generations.threads, exchange, {}, std::move(*answer));
  } else {
    PreparedCall& call = std::get<PreparedCall>(reading->prepared);
    if (call.background) {
      host_.background.start(exchange, std::move(call), *reading->arrived);
    } else {
      Generation::start(host_.generations, exchange, std::move(call), *reading->arrived);
    }
  }
}

void CallReader::ask(std::shared_ptr<Exchange> exchange, Answer answer) {
  on_worker(exchange, [this, exchange, answer]() mutable {
    const HttpRequest& request = exchange->request();
    // Shared because std::function must be copyable.
    auto answered = std::make_shared<AnswerResult>(ApiError{});
    try {
      if (!exchange->gone()) {
        const tokenizer::CancellationCheck is_cancelled = cancellation_of(*exchange);
        *answered = answer(host_.context_of(request, &is_cancelled), request.body);
      }
    } catch (const std::exception& failure) {  // mostly out of memory
      *answered = error_from_status(internal_error(failure.what()), request.id);
    }
    return_memory_of(request);
    host_.generations.threads.post([this, exchange = std::move(exchange), answered] {
      exchange->release_body();
      if (const auto* error = std::get_if<ApiError>(answered.get())) {
        exchange->respond(error_response(*error, exchange->request()));
      } else {
        send_json(host_.generations.threads, exchange, {},
                  std::move(std::get<JsonAnswer>(*answered)));
      }
    });
  });
}

}  // namespace heddle::server
