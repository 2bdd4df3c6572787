// SPDX-License-Identifier: Apache-2.0
#include "server/api/responses/response_store.h"

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

TEST(ResponseStoreTest, AHolderFillsItsShareAndNoMore) {
  ResponseStore store([] { return int64_t{1000}; }, 0.1);
  constexpr size_t kShare = ResponseStore::kMaxResponses / 10;
  store.put("first", {.body = "1", .holder = "you"});
  for (size_t i = 0; i < 2 * kShare; ++i)
    store.put(std::to_string(i), {.body = "x", .holder = "me"});
  EXPECT_EQ(store.size(), kShare + 1);
  EXPECT_EQ(store.find("0", "me"), nullptr);
  EXPECT_NE(store.find(std::to_string(2 * kShare - 1), "me"), nullptr);
  EXPECT_NE(store.find("first", "you"), nullptr) << "others lose nothing";

  const size_t third = ResponseStore::kMaxBytes / 30;
  for (const char* id : {"a", "b", "c"}) {
    store.put(id, {.body = std::string(third, 'x'), .holder = "large"});
  }
  store.put("d", {.body = "x", .input_bytes = third, .holder = "large"});
  EXPECT_EQ(store.find("a", "large"), nullptr);
  EXPECT_NE(store.find("b", "large"), nullptr);
  EXPECT_NE(store.find("d", "large"), nullptr);
  store.put("huge", {.body = std::string(4 * third, 'x'), .holder = "large"});
  EXPECT_EQ(store.find("huge", "large"), nullptr);
  EXPECT_NE(store.find("d", "large"), nullptr) << "it made no room for what cannot be kept";
}

TEST(ResponseStoreTest, WhereAllHaveTooMuchTheLargestHolderMakesRoom) {
  ResponseStore store([] { return int64_t{1000}; }, 0.5);
  store.put("old", {.body = "1", .holder = "small"});
  for (size_t i = 0; i < ResponseStore::kMaxResponses / 2; ++i) {
    store.put(std::to_string(i), {.body = "x", .holder = "a"});
    store.put(std::to_string(i), {.body = "x", .holder = "b"});
  }
  EXPECT_EQ(store.size(), ResponseStore::kMaxResponses);
  EXPECT_NE(store.find("old", "small"), nullptr) << "the oldest, and the smallest holder's";
}

TEST(ResponseStoreTest, AResponseThatRunsIsNeverEvicted) {
  ResponseStore store([] { return int64_t{1000}; });
  const auto running = [](std::string body = "{}") {
    return StoredResponse{.body = std::move(body), .holder = "", .is_running = true};
  };
  ASSERT_FALSE(store.put_running("runs", running()));
  for (size_t i = 0; i < 2 * ResponseStore::kMaxResponses; ++i) {
    store.put(std::to_string(i), {.body = "x", .holder = ""});
  }
  store.put("large", {.body = std::string(ResponseStore::kMaxBytes, 'x'), .holder = ""});
  EXPECT_NE(store.find("runs", ""), nullptr);
  EXPECT_NE(store.find("large", ""), nullptr) << "the newest is kept beside it";
  store.put("next", {.body = "x", .holder = ""});
  EXPECT_EQ(store.find("large", ""), nullptr);

  // As many as fit run, and the next one is refused.
  for (size_t i = 1; i < ResponseStore::kMaxResponses; ++i) {
    ASSERT_FALSE(store.put_running("r" + std::to_string(i), running())) << i;
  }
  const auto refused = store.put_running("more", running());
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->code, "too_many_background_responses");
  EXPECT_EQ(store.find("more", ""), nullptr);
  EXPECT_EQ(store.size(), ResponseStore::kMaxResponses);
  store.replace("runs", {.body = "ended", .holder = ""});
  EXPECT_FALSE(store.put_running("more", running()));
  EXPECT_TRUE(store.erase("more", ""));
  EXPECT_FALSE(store.put_running("again", running()));
}

TEST(ResponseStoreTest, RunningOnesFillAShareOfBytesAtMost) {
  ResponseStore store([] { return int64_t{1000}; }, 0.25);
  const StoredResponse large{.body = "{}",
                             .input_bytes = ResponseStore::kMaxBytes / 10,
                             .holder = "me",
                             .is_running = true};
  ASSERT_FALSE(store.put_running("a", large));
  ASSERT_FALSE(store.put_running("b", large));
  const auto refused = store.put_running("c", large);
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->message.find("of this key"), std::string::npos) << refused->message;
  StoredResponse of_another = large;
  of_another.holder = "you";
  EXPECT_FALSE(store.put_running("c", of_another));
}

TEST(ResponseStoreTest, OneThatIsTooLargeAtItsEndHasFailed) {
  ResponseStore store([] { return int64_t{1000}; });
  const std::string body =
      R"({"id":"a","status":"in_progress","error":null,"incomplete_details":null})";
  ASSERT_FALSE(store.put_running("a", {.body = body, .holder = "", .is_running = true}));
  store.replace("a", {.body = std::string(ResponseStore::kMaxBytes + 1, 'x'), .holder = ""});
  const auto kept = store.find("a", "");
  ASSERT_NE(kept, nullptr);
  EXPECT_FALSE(kept->is_running);
  EXPECT_NE(kept->body.find(R"("status":"failed")"), std::string::npos) << kept->body;
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
