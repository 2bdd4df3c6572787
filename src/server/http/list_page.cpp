// SPDX-License-Identifier: Apache-2.0
#include "server/http/list_page.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultAnthropicLimit = 20;
constexpr int64_t kMaxAnthropicLimit = 1000;

std::variant<int64_t, ApiError> read_limit(const HttpRequest& request, int64_t otherwise,
                                           int64_t max_limit) {
  const auto text = request.query_value("limit");
  if (!text) return otherwise;
  int64_t limit = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), limit);
  if (failure == std::errc() && end == text->data() + text->size() && limit >= 1 &&
      limit <= max_limit) {
    return limit;
  }
  return invalid_value("limit", fmt::format("`limit` is \"{}\"; it must be from 1 to {}.",
                                            printable(*text, 40), max_limit));
}

// Index of the entry whose id is the query parameter `name`; none if the parameter is missing.
std::variant<std::optional<size_t>, ApiError> read_cursor(const HttpRequest& request,
                                                          std::string_view name,
                                                          const std::vector<const Json*>& shown) {
  const auto id = request.query_value(name);
  if (!id) return std::nullopt;
  const auto found =
      std::ranges::find_if(shown, [&id](const Json* entry) { return (*entry)["id"] == *id; });
  if (found != shown.end()) return static_cast<size_t>(found - shown.begin());
  return invalid_value(
      name, fmt::format("`{}` is \"{}\", which is not in the list.", name, printable(*id, 128)));
}

}  // namespace

std::variant<bool, ApiError> read_newest_first(const HttpRequest& request) {
  const std::string order = request.query_value("order").value_or("desc");
  if (order == "asc" || order == "desc") return order == "desc";
  return invalid_value(
      "order", fmt::format("`order` is \"{}\"; it must be asc or desc.", printable(order, 40)));
}

std::variant<Json, ApiError> page_of(const HttpRequest& request, const Json& entries,
                                     const ListForm& form) {
  const auto limit = read_limit(request, form.default_limit, form.max_limit);
  if (const auto* const error = std::get_if<ApiError>(&limit)) return *error;
  std::vector<const Json*> shown;
  for (const Json& entry : entries) shown.push_back(&entry);
  if (form.reversed) std::ranges::reverse(shown);
  const auto after = read_cursor(request, "after", shown);
  if (const auto* const error = std::get_if<ApiError>(&after)) return *error;
  if (const auto index = std::get<0>(after)) {
    shown.erase(shown.begin(), shown.begin() + static_cast<std::ptrdiff_t>(*index) + 1);
  }
  const int64_t num_shown = std::get<int64_t>(limit);
  const bool has_more = std::ssize(shown) > num_shown;
  if (has_more) shown.resize(static_cast<size_t>(num_shown));
  Json page = {{"object", "list"}, {"data", Json::array()}, {"has_more", has_more}};
  for (const Json* const entry : shown) page["data"].push_back(*entry);
  page["first_id"] = shown.empty() ? Json("") : (*shown.front())["id"];
  page["last_id"] = shown.empty() ? Json("") : (*shown.back())["id"];
  return page;
}

std::variant<Json, ApiError> anthropic_page_of(const HttpRequest& request, const Json& entries) {
  const auto limit = read_limit(request, kDefaultAnthropicLimit, kMaxAnthropicLimit);
  if (const auto* const error = std::get_if<ApiError>(&limit)) return *error;
  std::vector<const Json*> all;
  for (const Json& entry : entries) all.push_back(&entry);
  const auto after = read_cursor(request, "after_id", all);
  if (const auto* const error = std::get_if<ApiError>(&after)) return *error;
  const auto before = read_cursor(request, "before_id", all);
  if (const auto* const error = std::get_if<ApiError>(&before)) return *error;
  size_t begin = std::get<0>(after) ? *std::get<0>(after) + 1 : 0;
  size_t end = std::max(begin, std::get<0>(before).value_or(all.size()));
  const auto most = static_cast<size_t>(std::get<int64_t>(limit));
  const bool has_more = end - begin > most;
  if (has_more && std::get<0>(before) && !std::get<0>(after)) {
    begin = end - most;  // with before_id the page ends just before that entry
  } else {
    end = std::min(end, begin + most);
  }
  Json page = {{"data", Json::array()}, {"has_more", has_more}};
  for (size_t i = begin; i < end; ++i) page["data"].push_back(*all[i]);
  page["first_id"] = begin < end ? (*all[begin])["id"] : Json();
  page["last_id"] = begin < end ? (*all[end - 1])["id"] : Json();
  return page;
}

}  // namespace heddle::server
