// SPDX-License-Identifier: Apache-2.0
#include "server/api/responses/input_items.h"

#include <string>
#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "server/api/responses/response_store.h"
#include "server/http/api_error.h"
#include "server/http/http_message.h"
#include "server/http/json_text.h"
#include "server/http/key_ring.h"
#include "server/http/list_page.h"
#include "server/http/routes.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kInputItems = "/input_items";

// Adds the two lists that the parts of an assistant's text have, if the client did not send them.
void complete_parts(Json& content) {
  for (Json& part : content) {
    if (!part.is_object() || part.value("type", Json()) != "output_text") continue;
    for (const char* list : {"annotations", "logprobs"}) {
      if (!part.contains(list)) part[list] = Json::array();
    }
  }
}

// An item in the form that OpenAI's servers show; clients may send less.
Json shown_item(Json shown) {
  const Json type = shown.value("type", Json());
  if (type == "message") {
    const bool is_answer = shown.value("role", Json()) == "assistant";
    Json& content = shown["content"];
    if (content.is_string()) {
      Json part = {{"type", is_answer ? "output_text" : "input_text"},
                   {"text", std::move(content)}};
      content = Json::array({std::move(part)});
    }
    complete_parts(content);
  } else if (type != "function_call" && type != "function_call_output") {
    return shown;
  }
  if (const auto status = shown.find("status"); status == shown.end() || status->is_null()) {
    shown["status"] = "completed";
  }
  return shown;
}

}  // namespace

bool asks_for_input_items(const HttpRequest& request) {
  return request.method == "GET" && request.path.starts_with(kResponsePrefix) &&
         request.path.ends_with(kInputItems) &&
         request.path.size() > kResponsePrefix.size() + kInputItems.size();
}

AnswerResult answer_input_items(const CallContext& context, std::string_view) {
  const HttpRequest& request = context.head;
  std::string id = request.path.substr(kResponsePrefix.size());
  id.resize(id.size() - kInputItems.size());
  const auto response =
      context.responses == nullptr ? nullptr : context.responses->find(id, holder_of(request.key));
  if (response == nullptr) return response_not_found(id, "response_id");
  const auto newest_first = read_newest_first(request);
  if (const auto* const error = std::get_if<ApiError>(&newest_first)) return *error;
  auto paged = page_of(request, *response->input, {.reversed = std::get<bool>(newest_first)});
  if (const auto* const error = std::get_if<ApiError>(&paged)) return *error;
  Json& page = std::get<Json>(paged);
  for (Json& item : page["data"]) item = shown_item(std::move(item));
  JsonPieces body;
  body.around(dump_json(page));
  return JsonAnswer{.body = std::move(body), .shown = nullptr};
}

}  // namespace heddle::server
