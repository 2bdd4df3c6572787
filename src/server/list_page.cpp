// SPDX-License-Identifier: Apache-2.0
#include "server/list_page.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::variant<bool, ApiError> read_newest_first(const HttpRequest& request) {
  const std::string order = request.query_value("order").value_or("desc");
  if (order == "asc" || order == "desc") return order == "desc";
  return invalid_value(
      "order", fmt::format("`order` is \"{}\"; it must be asc or desc.", printable(order, 40)));
}

std::variant<Json, ApiError> page_of(const HttpRequest& request, const Json& entries,
                                     const ListForm& form) {
  int64_t limit = form.default_limit;
  if (const auto text = request.query_value("limit")) {
    const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), limit);
    if (failure != std::errc() || end != text->data() + text->size() || limit < 1 ||
        limit > form.max_limit) {
      return invalid_value("limit", fmt::format("`limit` is \"{}\"; it must be from 1 to {}.",
                                                printable(*text, 40), form.max_limit));
    }
  }
  std::vector<const Json*> shown;
  for (const Json& entry : entries) shown.push_back(&entry);
  if (form.reversed) std::ranges::reverse(shown);
  if (const auto after = request.query_value("after")) {
    const auto found = std::ranges::find_if(
        shown, [&after](const Json* entry) { return (*entry)["id"] == *after; });
    if (found == shown.end()) {
      return invalid_value("after", fmt::format("`after` is \"{}\", which is not in the list.",
                                                printable(*after, 128)));
    }
    shown.erase(shown.begin(), found + 1);
  }
  const bool has_more = std::ssize(shown) > limit;
  if (has_more) shown.resize(static_cast<size_t>(limit));
  Json page = {{"object", "list"}, {"data", Json::array()}, {"has_more", has_more}};
  for (const Json* const entry : shown) page["data"].push_back(*entry);
  page["first_id"] = shown.empty() ? Json("") : (*shown.front())["id"];
  page["last_id"] = shown.empty() ? Json("") : (*shown.back())["id"];
  return page;
}

}  // namespace heddle::server
