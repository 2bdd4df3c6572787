// SPDX-License-Identifier: Apache-2.0
#include "server/response_store.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

TEST(ResponseStoreTest, KeepsTheNewestOfEachHolderForAnHour) {
  int64_t now = 1000;
  ResponseStore store([&now] { return now; });
  const auto response = [](std::string body, std::string holder) {
    return StoredResponse{.body = std::move(body), .holder = std::move(holder)};
  };
  store.put("a", response("1", "me"));
  ASSERT_NE(store.find("a", "me"), nullptr);
  EXPECT_EQ(store.find("a", "me")->body, "1");
  EXPECT_EQ(store.find("a", "you"), nullptr);
  store.put("a", response("2", "me"));
  EXPECT_EQ(store.find("a", "me")->body, "1") << "an id is given once";
  StoredResponse running = response("runs", "me");
  running.is_running = true;
  store.put("b", running);
  store.put("b", response("of another call", "me"));
  store.replace("b", response("of another key", "you"));
  EXPECT_EQ(store.find("b", "me")->body, "runs");
  store.replace("b", response("ended", "me"));
  EXPECT_EQ(store.find("b", "me")->body, "ended") << "what it came to takes its place";
  EXPECT_EQ(store.find("b", "you")->body, "of another key");
  EXPECT_EQ(store.size(), 3u);
  store.put("c", running);
  now += ResponseStore::kMaxAgeSeconds + 1;
  EXPECT_EQ(store.find("a", "me"), nullptr);
  EXPECT_NE(store.find("c", "me"), nullptr) << "it runs";
  store.replace("c", response("ended", "me"));
  now += ResponseStore::kMaxAgeSeconds;
  EXPECT_NE(store.find("c", "me"), nullptr) << "its hour begins at its end";
  for (size_t i = 0; i < ResponseStore::kMaxResponses; ++i) {
    store.put(std::to_string(i), response("x", ""));
  }
  EXPECT_EQ(store.size(), ResponseStore::kMaxResponses);
  EXPECT_EQ(store.find("a", "me"), nullptr);
  store.put("large", response(std::string(ResponseStore::kMaxBytes, 'x'), ""));
  EXPECT_EQ(store.size(), 1u);
  store.put("input", {.body = "1", .input_bytes = ResponseStore::kMaxBytes - 1, .holder = ""});
  EXPECT_EQ(store.size(), 1u) << "its input is kept, too";
  EXPECT_EQ(store.find("large", ""), nullptr);
}

TEST(ResponseStoreTest, AnIdIsClaimedOnceByEachHolder) {
  int64_t now = 1000;
  const auto store = std::make_shared<ResponseStore>([&now] { return now; });
  auto mine = ResponseStore::claim(store, "a", "me");
  EXPECT_NE(mine, nullptr);
  EXPECT_EQ(ResponseStore::claim(store, "a", "me"), nullptr);
  EXPECT_NE(ResponseStore::claim(store, "a", "you"), nullptr);
  mine.reset();
  mine = ResponseStore::claim(store, "a", "me");
  EXPECT_NE(mine, nullptr);
  store->put("a", {.body = "1", .holder = "me"});
  mine.reset();
  EXPECT_EQ(ResponseStore::claim(store, "a", "me"), nullptr) << "it is kept";
  now += ResponseStore::kMaxAgeSeconds + 1;
  EXPECT_NE(ResponseStore::claim(store, "a", "me"), nullptr);
}

}  // namespace
}  // namespace heddle::server
