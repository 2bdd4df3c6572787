// SPDX-License-Identifier: Apache-2.0
#include "server/api/responses/background_responses.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/api/responses/responses_answer.h"
#include "server/call/request_log.h"
#include "server/http/api_error.h"
#include "server/http/captured_exchange.h"
#include "server/http/json_text.h"
#include "server/http/key_ring.h"
#include "server/http/routes.h"

namespace heddle::server {

namespace {

using Json = nlohmann::ordered_json;

// Reads the number of the last event that the client has; -1: none.
std::variant<int64_t, ApiError> read_starting_after(const HttpRequest& request) {
  const auto text = request.query_value("starting_after");
  if (!text || text->empty()) return int64_t{-1};
  int64_t number = 0;
  const char* const text_end = text->data() + text->size();
  const auto [end, failure] = std::from_chars(text->data(), text_end, number);
  if (failure == std::errc() && end == text_end && number >= -1) return number;
  return invalid_value("starting_after",
                       fmt::format("`starting_after` is \"{}\"; it must be the number of an event.",
                                   printable(*text, 40)));
}

// The key of a response's recording. It is unambiguous because holders contain no slash.
std::string key_of_reader(const std::string& id, const std::string& holder) {
  return fmt::format("{}/{}", holder, id);
}

// Number of the last event that every response has before its output begins.
constexpr int64_t kLastEventOfBegin = 1;

// The part of `events`, which are complete, after event number `after`.
std::string_view events_after(std::string_view events, int64_t after) {
  constexpr std::string_view kName = "\"sequence_number\":";
  while (!events.empty()) {
    const size_t name = events.find(kName);
    if (name == std::string_view::npos) return {};
    int64_t number = 0;
    const std::string_view rest = events.substr(name + kName.size());
    std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (number > after) break;
    events.remove_prefix(std::min(events.find("\n\n") + 2, events.size()));
  }
  return events;
}

// The exchange of a streamed answer without a client: passes on its events, and then how it ended.
class EventExchange final : public Exchange {
 public:
  using OnEvents = std::function<void(std::string_view events)>;
  using OnEnd = std::function<void(HttpResponse answer)>;  // called at the end with a refusal, or
                                                           // with status 200

  EventExchange(HttpRequest request, OnEvents on_events, OnEnd on_end)
      : Exchange(std::move(request)),
        on_events_(std::move(on_events)),
        on_end_(std::move(on_end)) {}

  void respond(HttpResponse response) override { end(std::move(response)); }

  void open_body(HttpResponse) override {}

  void open_stream(StreamFormat) override {}

  void write(std::string bytes) override {
    committed_ = true;
    on_events_(bytes);
  }

  void finish() override { end({.headers = {}, .body = {}}); }

  void break_off() override { end({.status = 0, .headers = {}, .body = {}}); }

  [[nodiscard]] bool backed_up() const override { return false; }

  [[nodiscard]] bool committed() const override { return committed_; }

 private:
  void end(HttpResponse answer) {
    if (const OnEnd on_end = std::exchange(on_end_, nullptr)) on_end(std::move(answer));
  }

  const OnEvents on_events_;
  OnEnd on_end_;
  bool committed_ = false;
};

}  // namespace

BackgroundResponses::BackgroundResponses(GenerationHost& host,
                                         std::shared_ptr<ResponseStore> responses,
                                         std::function<void(const HttpRequest&)> forget)
    : host_(host), responses_(std::move(responses)), forget_(std::move(forget)) {}

void BackgroundResponses::start(const std::shared_ptr<Exchange>& exchange, PreparedCall call,
                                const EarlyAborts::Call& arrived) {
  if (exchange->gone()) {  // the client has disconnected without learning the response's id
    return LoggedCall::end(std::move(call.logged), host_.threads);
  }
  const HttpRequest& request = exchange->request();
  const std::string id = call.id;
  HttpRequest own{.method = request.method,
                  .path = request.path,
                  .query = {},
                  .headers = {},
                  .body = {},
                  .id = call.id,
                  .arrived_at = request.arrived_at,
                  .key = request.key,
                  .counted = exchange->hand_over_count(),
                  .error_form = request.error_form};
  BackgroundAnswer background = std::move(*call.background);
  // Shared with the callback: if the call is refused before it runs, this client gets the error.
  const auto client = std::make_shared<std::shared_ptr<Exchange>>(exchange);
  const auto on_answer = [this, client, own,
                          holder = background.running.holder](HttpResponse answer) {
    forget_(own);
    if (answer.status != 200 && *client != nullptr) {
      responses_->erase(own.id, holder);
      return std::exchange(*client, nullptr)->respond(std::move(answer));
    }
    // The adapter stores a successful answer.
    if (answer.status != 200) keep_failure(own.id, holder, answer);
    end_readers(own.id, holder, answer.status == 200);
  };
  call.background.reset();
  exchange->rename(id);
  const bool is_stream = call.stream;
  const std::string key = key_of_reader(id, background.running.holder);
  std::shared_ptr<Exchange> taker;
  if (is_stream) {
    const auto on_events = [this, key](std::string_view events) { record(key, events); };
    taker = std::make_shared<EventExchange>(own, on_events, on_answer);
  } else {
    taker = std::make_shared<CapturedExchange>(own, on_answer);
  }
  // Reserved before the call starts, so that no call runs whose response cannot be stored.
  if (const auto error = responses_->put_running(id, background.running)) {
    LoggedCall::end(std::move(call.logged), host_.threads,
                    to_string(StatusCode::kResourceExhausted));
    forget_(own);
    return exchange->respond(error_response(*error, request));
  }
  Generation::start(host_, std::move(taker), std::move(call), arrived);
  if (*client == nullptr) return;  // the call was refused, and the client has been answered
  // Its events will arrive later, on this thread.
  const std::shared_ptr<Exchange> waiting = std::exchange(*client, nullptr);
  if (!is_stream) {
    return waiting->respond({.headers = {}, .body = std::move(background.queued)});
  }
  waiting->open_stream(StreamFormat::kEvents);
  Recording& recording = running_[key];
  recording.is_live = true;
  recording.readers.push_back({.exchange = waiting, .is_live = true});
}

void BackgroundResponses::record(const std::string& key, std::string_view events) {
  const auto entry = running_.find(key);
  if (entry == running_.end()) return;
  Recording& recording = entry->second;
  recording.has_begun = true;
  for (const Reader& reader : recording.readers) {
    if (!reader.is_live || reader.exchange->gone()) continue;
    const std::string_view more = events_after(events, reader.starting_after);
    if (!more.empty()) reader.exchange->write(std::string(more));
  }
  if (!recording.is_live) return;
  if (recording.events.size() + events.size() > kMaxRecordedBytes) {
    recording.is_live = false;
    std::string().swap(recording.events);
  } else {
    recording.events += events;
  }
}

void BackgroundResponses::keep_failure(const std::string& id, const std::string& holder,
                                       const HttpResponse& answer) {
  const auto running = responses_->find(id, holder);
  if (running == nullptr) return;
  Json reason = {{"code", "server_error"}, {"message", "The answer was cut off."}};
  const Json failure = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (failure.is_object()) {
    const Json& error = failure.contains("error") ? failure["error"] : failure;
    if (error.value("code", Json()).is_string()) reason["code"] = error["code"];
    reason["message"] = error.value("message", reason["message"]);
  }
  StoredResponse failed = *running;
  failed.body = with_state(running->body, "failed", reason);
  failed.is_running = false;
  responses_->replace(id, std::move(failed));
}

void BackgroundResponses::answer(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  constexpr std::string_view kCancel = "/cancel";
  std::string id = request.path.substr(kResponsePrefix.size());
  const bool cancels = request.method == "POST" && id.ends_with(kCancel);
  if (cancels) id.resize(id.size() - kCancel.size());
  const auto response = responses_->find(id, holder_of(request.key));
  if (response == nullptr || (request.method == "POST" && !cancels)) {
    exchange->respond(error_response(response_not_found(id, "response_id"), request));
  } else if (request.method == "DELETE") {
    exchange->respond(forget_response(request, id, *response));
  } else if (cancels) {
    exchange->respond(cancel(request, id, *response));
  } else if (request.method == "GET" && request.query_value("stream") == "true") {
    stream(exchange, id, response);
  } else {
    exchange->respond({.headers = {}, .body = response->body});
  }
}

void BackgroundResponses::stream(const std::shared_ptr<Exchange>& exchange, const std::string& id,
                                 std::shared_ptr<const StoredResponse> response) {
  const auto after = read_starting_after(exchange->request());
  if (const auto* const error = std::get_if<ApiError>(&after)) {
    exchange->respond(error_response(*error, exchange->request()));
    return;
  }
  Reader reader{.exchange = exchange, .starting_after = std::get<int64_t>(after)};
  exchange->open_stream(StreamFormat::kEvents);
  const auto running = running_.find(key_of_reader(id, response->holder));
  if (running != running_.end() && running->second.is_live) {
    const std::string_view events = events_after(running->second.events, reader.starting_after);
    if (!events.empty()) exchange->write(std::string(events));
    reader.is_live = true;
    running->second.readers.push_back(std::move(reader));
    return;
  }
  const bool is_running = response->is_running;
  const std::string holder = response->holder;
  write_events(reader, std::move(response),
               [this, id, holder, reader, is_running](std::string events) {
                 if (!events.empty()) reader.exchange->write(std::move(events));
                 if (!is_running) return reader.exchange->finish();
                 follow(id, holder, reader);
               });
}

// Writes the events on a worker and passes them on, on the I/O thread.
void BackgroundResponses::write_events(Reader reader,
                                       std::shared_ptr<const StoredResponse> response,
                                       std::function<void(std::string events)> then) {
  const auto work = [this, reader, response = std::move(response), then = std::move(then)] {
    std::string events = response_events(*response, reader.starting_after);
    host_.threads.post([reader, then, events = std::move(events)]() mutable {
      if (!reader.exchange->gone()) then(std::move(events));
    });
  };
  if (!host_.threads.run_on_worker(work)) work();
}

// Adds a reader to a running response, which may have ended while its first events were written.
void BackgroundResponses::follow(const std::string& id, const std::string& holder, Reader reader) {
  reader.starting_after = std::max(reader.starting_after, kLastEventOfBegin);
  running_[key_of_reader(id, holder)].readers.push_back(std::move(reader));
  const auto response = responses_->find(id, holder);
  if (response == nullptr || !response->is_running) end_readers(id, holder, true);
}

// Ends all readers of a response. `is_complete`: the recorded events include the last one.
void BackgroundResponses::end_readers(const std::string& id, const std::string& holder,
                                      bool is_complete) {
  const auto entry = running_.extract(key_of_reader(id, holder));
  if (entry.empty()) return;
  const bool has_begun = entry.mapped().has_begun;
  const auto response = responses_->find(id, holder);
  for (const Reader& reader : entry.mapped().readers) {
    if (reader.exchange->gone()) continue;
    if (reader.is_live && is_complete) {
      reader.exchange->finish();
    } else if ((reader.is_live && has_begun) || response == nullptr || response->is_running) {
      reader.exchange->break_off();
    } else {
      write_events(reader, response, [exchange = reader.exchange](std::string events) {
        if (!events.empty()) exchange->write(std::move(events));
        exchange->finish();
      });
    }
  }
}

HttpResponse BackgroundResponses::forget_response(const HttpRequest& request, const std::string& id,
                                                  const StoredResponse& response) {
  if (response.is_running) {
    return error_response(
        {.status = 409,
         .code = "conflict",
         .message = fmt::format("The response `{}` still runs; cancel it first.", id),
         .param = "response_id"},
        request);
  }
  responses_->erase(id, response.holder);
  return json_response({{"id", id}, {"object", "response"}, {"deleted", true}});
}

HttpResponse BackgroundResponses::cancel(const HttpRequest& request, const std::string& id,
                                         const StoredResponse& response) {
  if (!response.is_running) {
    return error_response({.code = "invalid_value",
                           .message = fmt::format("The response `{}` has ended. One that does not "
                                                  "run in the background ends with its connection.",
                                                  id),
                           .param = "response_id"},
                          request);
  }
  // The call runs, so no abort needs to be remembered.
  static_cast<void>(Generation::abort(host_, id, response.holder));
  StoredResponse shown = response;  // shown until the engine has ended the call
  shown.body = with_state(response.body, "cancelled");
  HttpResponse answer{.headers = {}, .body = shown.body};
  responses_->replace(id, std::move(shown));
  return answer;
}

}  // namespace heddle::server
