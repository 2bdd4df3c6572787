// SPDX-License-Identifier: Apache-2.0
#include "server/http/list_page.h"

#include <string>
#include <utility>
#include <variant>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

using Ordered = nlohmann::ordered_json;

const Ordered kEntries = {{{"id", "a"}}, {{"id", "b"}}, {{"id", "c"}}};

HttpRequest asking(std::string query) {
  HttpRequest request;
  request.query = std::move(query);
  return request;
}

// The page that shows these entries.
Ordered page_with(const Ordered& data, bool has_more, const char* first, const char* last) {
  return {{"object", "list"},
          {"data", data},
          {"has_more", has_more},
          {"first_id", first},
          {"last_id", last}};
}

Ordered page(std::string query, const ListForm& form = {}) {
  auto result = page_of(asking(std::move(query)), kEntries, form);
  EXPECT_TRUE(std::holds_alternative<Ordered>(result));
  return std::get<Ordered>(std::move(result));
}

std::string param_at_fault(std::string query, const ListForm& form = {}) {
  const auto result = page_of(asking(std::move(query)), kEntries, form);
  const auto* const error = std::get_if<ApiError>(&result);
  return error == nullptr ? "" : error->param;
}

TEST(ListPageTest, GoesOnAfterTheLastEntryShown) {
  const Ordered &a = kEntries[0], &b = kEntries[1], &c = kEntries[2];
  EXPECT_EQ(page(""), page_with(kEntries, false, "a", "c"));
  EXPECT_EQ(page("limit=2"), page_with({a, b}, true, "a", "b"));
  EXPECT_EQ(page("limit=2&after=b"), page_with(Ordered::array({c}), false, "c", "c"));
  EXPECT_EQ(page("", {.reversed = true, .default_limit = 1}),
            page_with(Ordered::array({c}), true, "c", "c"));
  EXPECT_EQ(page("after=c", {.reversed = true}), page_with({b, a}, false, "b", "a"));
}

TEST(ListPageTest, TheIdsOfAnEmptyPageAreTexts) {
  EXPECT_EQ(page("after=c"), page_with(Ordered::array(), false, "", ""));
}

TEST(ListPageTest, NamesTheParameterAtFault) {
  for (const char* const limit : {"limit=0", "limit=101", "limit=", "limit=2x", "limit=-1"}) {
    EXPECT_EQ(param_at_fault(limit), "limit") << limit;
  }
  EXPECT_EQ(param_at_fault("limit=6", {.max_limit = 5}), "limit");
  EXPECT_EQ(param_at_fault("limit=100"), "");
  EXPECT_EQ(param_at_fault("after=d"), "after");
}

TEST(ListPageTest, TheNewestEntryComesFirstUnlessTheOrderIsAscending) {
  EXPECT_TRUE(std::get<bool>(read_newest_first(asking(""))));
  EXPECT_TRUE(std::get<bool>(read_newest_first(asking("order=desc"))));
  EXPECT_FALSE(std::get<bool>(read_newest_first(asking("order=asc"))));
  EXPECT_EQ(std::get<ApiError>(read_newest_first(asking("order=up"))).param, "order");
}

}  // namespace
}  // namespace heddle::server
