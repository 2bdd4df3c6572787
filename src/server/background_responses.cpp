// SPDX-License-Identifier: Apache-2.0
#include "server/background_responses.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/captured_exchange.h"
#include "server/json_text.h"
#include "server/key_ring.h"
#include "server/request_log.h"
#include "server/responses_answer.h"
#include "server/routes.h"

namespace heddle::server {

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

BackgroundResponses::BackgroundResponses(GenerationHost& host,
                                         std::shared_ptr<ResponseStore> responses,
                                         std::function<void(const HttpRequest&)> forget)
    : host_(host), responses_(std::move(responses)), forget_(std::move(forget)) {}

void BackgroundResponses::start(const std::shared_ptr<Exchange>& exchange, PreparedCall call,
                                const EarlyAborts::Call& arrived) {
  if (exchange->gone()) {  // it does not know the id
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
  // Shared with the answer: what is refused before it ran at all is this request's own answer.
  const auto client = std::make_shared<std::shared_ptr<Exchange>>(exchange);
  const auto on_answer = [this, client, own,
                          holder = background.running.holder](HttpResponse answer) {
    forget_(own);
    if (answer.status == 200) return;  // the adapter has kept the response
    if (*client != nullptr) {
      responses_->erase(own.id, holder);
      return std::exchange(*client, nullptr)->respond(std::move(answer));
    }
    keep_failure(own.id, holder, answer);
  };
  call.background.reset();
  exchange->rename(id);
  // Before it starts, so that nothing runs that cannot be kept.
  if (const auto error = responses_->put_running(id, background.running)) {
    LoggedCall::end(std::move(call.logged), host_.threads,
                    to_string(StatusCode::kResourceExhausted));
    forget_(own);
    return exchange->respond(error_response(*error, request));
  }
  Generation::start(host_, std::make_shared<CapturedExchange>(own, on_answer), std::move(call),
                    arrived);
  if (*client == nullptr) return;  // it was refused
  // Its events come later, on this thread.
  std::exchange(*client, nullptr)->respond({.headers = {}, .body = std::move(background.queued)});
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

HttpResponse BackgroundResponses::answer(const HttpRequest& request) {
  constexpr std::string_view kCancel = "/cancel";
  std::string id = request.path.substr(kResponsePrefix.size());
  const bool cancels = request.method == "POST" && id.ends_with(kCancel);
  if (cancels) id.resize(id.size() - kCancel.size());
  const auto response = responses_->find(id, holder_of(request.key));
  if (response == nullptr || (request.method == "POST" && !cancels)) {
    return error_response(response_not_found(id, "response_id"), request);
  }
  if (request.query_value("stream") == "true") {
    return error_response(
        unsupported_parameter("stream", "a response that is kept is shown as it is, not as events"),
        request);
  }
  if (request.method == "DELETE") return forget_response(request, id, *response);
  return cancels ? cancel(request, id, *response)
                 : HttpResponse{.headers = {}, .body = response->body};
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
  // It is live: its abort needs no room.
  static_cast<void>(Generation::abort(host_, id, response.holder));
  StoredResponse shown = response;  // until the engine has ended it
  shown.body = with_state(response.body, "cancelled");
  HttpResponse answer{.headers = {}, .body = shown.body};
  responses_->replace(id, std::move(shown));
  return answer;
}

}  // namespace heddle::server
