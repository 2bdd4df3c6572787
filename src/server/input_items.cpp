// SPDX-License-Identifier: Apache-2.0
#include "server/input_items.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/http_message.h"
#include "server/json_text.h"
#include "server/key_ring.h"
#include "server/response_store.h"
#include "server/routes.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kInputItems = "/input_items";

// As OpenAI's servers show it, whose clients may send less.
Json shown_item(const Json& item) {
  Json shown = item;
  if (shown["type"] != "message") return shown;
  if (Json& content = shown["content"]; content.is_string()) {
    Json part = {{"type", shown["role"] == "assistant" ? "output_text" : "input_text"},
                 {"text", std::move(content)}};
    if (shown["role"] == "assistant") part["annotations"] = Json::array();
    content = Json::array({std::move(part)});
  }
  if (!shown.contains("status")) shown["status"] = "completed";
  return shown;
}

struct ItemPage {
  std::vector<const Json*> items;
  bool has_more = false;
};

std::variant<ItemPage, ApiError> page_of_items(const HttpRequest& request, const Json& items) {
  constexpr int64_t kDefaultLimit = 20;
  constexpr int64_t kMaxLimit = 100;
  const std::string order = request.query_value("order").value_or("desc");
  if (order != "asc" && order != "desc") {
    return invalid_value(
        "order", fmt::format("`order` is \"{}\"; it must be asc or desc.", printable(order, 40)));
  }
  int64_t limit = kDefaultLimit;
  if (const auto text = request.query_value("limit")) {
    const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), limit);
    if (failure != std::errc() || end != text->data() + text->size() || limit < 1 ||
        limit > kMaxLimit) {
      return invalid_value("limit", fmt::format("`limit` is \"{}\"; it must be from 1 to {}.",
                                                printable(*text, 40), kMaxLimit));
    }
  }
  ItemPage page;
  for (const Json& item : items) page.items.push_back(&item);
  if (order == "desc") std::ranges::reverse(page.items);
  if (const auto after = request.query_value("after")) {
    const auto found = std::ranges::find_if(
        page.items, [&after](const Json* item) { return (*item)["id"] == *after; });
    if (found == page.items.end()) {
      return invalid_value("after", fmt::format("`after` is \"{}\", which is not in the list.",
                                                printable(*after, 128)));
    }
    page.items.erase(page.items.begin(), found + 1);
  }
  page.has_more = std::ssize(page.items) > limit;
  if (page.has_more) page.items.resize(static_cast<size_t>(limit));
  return page;
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
  const auto paged = page_of_items(request, *response->input);
  if (const auto* const error = std::get_if<ApiError>(&paged)) return *error;
  const auto& [items, has_more] = std::get<ItemPage>(paged);
  Json list = {{"object", "list"}, {"data", Json::array()}};
  for (const Json* const item : items) list["data"].push_back(shown_item(*item));
  list["first_id"] = items.empty() ? Json(nullptr) : (*items.front())["id"];
  list["last_id"] = items.empty() ? Json(nullptr) : (*items.back())["id"];
  list["has_more"] = has_more;
  JsonPieces body;
  body.around(dump_json(list));
  return JsonAnswer{.body = std::move(body), .shown = nullptr};
}

}  // namespace heddle::server
