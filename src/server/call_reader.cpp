// SPDX-License-Identifier: Apache-2.0
#include "server/call_reader.h"

#include <exception>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <malloc.h>

#include "server/completions.h"
#include "server/key_ring.h"
#include "server/native_generate.h"
#include "server/request_log.h"
#include "server/sampling_fields.h"

namespace heddle::server {
namespace {

constexpr size_t kMaxQueuedWork = 4096;

// The values of a large body are many and small, and the allocator keeps their memory when they are
// freed: after bodies of 10 to 60 MB and chats of 300,000 messages the server, which begins with 52
// MiB, has 78 MiB, and 464 without this. Other threads wait for a moment
// where they allocate. Cost: milliseconds.
void return_memory_of(const HttpRequest& read) {
  if (read.body.size() >= kLargeBodyBytes) malloc_trim(0);
}

LimitedFields limited_fields(PrepareResult (*prepare)(const CallContext&, std::string_view)) {
  if (prepare == prepare_completions) return {.logprobs = "logprobs"};
  if (prepare == prepare_generate || prepare == prepare_vertex) {
    return {.stop = "sampling_params.stop", .logprobs = "top_logprobs_num"};
  }
  return {};
}

}  // namespace

CallReader::CallReader(CallReaderHost host)
    : host_(std::move(host)), workers_(host_.options.num_workers, kMaxQueuedWork) {}

bool CallReader::run_on_worker(std::function<void()> work) {
  return workers_.submit(WorkSize::kSmall, std::move(work));
}

// A worker stops encoding once its client has left or the server drains.
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

void CallReader::call(std::shared_ptr<Exchange> exchange, Prepare prepare) {
  on_worker(exchange, [this, exchange, prepare,
                       arrived = host_.generations.early_aborts.arrive(
                           holder_of(exchange->request().key))]() mutable {
    // Shared, because std::function wants to be copied.
    auto prepared = std::make_shared<PrepareResult>(ApiError{});
    const HttpRequest& request = exchange->request();
    try {
      if (!exchange->gone()) {
        const tokenizer::CancellationCheck is_cancelled = cancellation_of(*exchange);
        const CallContext context = host_.context_of(request, &is_cancelled);
        *prepared = prepare(context, request.body);
        if (auto* const read = std::get_if<PreparedCall>(prepared.get())) {
          read->num_weight_updates = context.num_weight_updates;
          if (auto error =
                  check_limits(read->requests, host_.options.answers, limited_fields(prepare))) {
            *prepared = *error;
          } else {
            read->logged = host_.generations.request_log->received({
                .id = read->id,
                .path = request.path,
                .model = context.served_names.front(),
                .no_logs = read->no_logs,
                .requests = read->requests,
                .codec = context.codec,
                .arrived_at = request.arrived_at,
            });
          }
        }
      }
    } catch (const std::exception& failure) {  // out of memory
      *prepared = error_from_status(internal_error(failure.what()), request.id);
    }
    return_memory_of(request);
    // The last references end on the I/O thread, where exchanges and early aborts live.
    host_.generations.threads.post(
        [this, exchange = std::move(exchange), prepared, arrived = std::move(arrived)] {
          exchange->release_body();
          if (const auto* error = std::get_if<ApiError>(prepared.get())) {
            exchange->respond(error_response(*error, exchange->request()));
          } else if (auto* const answer = std::get_if<JsonAnswer>(prepared.get())) {
            send_json(host_.generations.threads, exchange, {}, std::move(*answer));
          } else {
            PreparedCall& call = std::get<PreparedCall>(*prepared);
            if (call.background) {
              host_.background.start(exchange, std::move(call), *arrived);
            } else {
              Generation::start(host_.generations, exchange, std::move(call), *arrived);
            }
          }
        });
  });
}

void CallReader::ask(std::shared_ptr<Exchange> exchange, Answer answer) {
  on_worker(exchange, [this, exchange, answer]() mutable {
    const HttpRequest& request = exchange->request();
    // Shared, because std::function wants to be copied.
    auto answered = std::make_shared<AnswerResult>(ApiError{});
    try {
      if (!exchange->gone()) {
        const tokenizer::CancellationCheck is_cancelled = cancellation_of(*exchange);
        *answered = answer(host_.context_of(request, &is_cancelled), request.body);
      }
    } catch (const std::exception& failure) {  // out of memory
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
