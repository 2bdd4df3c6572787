// SPDX-License-Identifier: Apache-2.0
#include "server/http/round_robin_queue.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::server {
namespace {

std::string drained(RoundRobinQueue<std::string>& queue) {
  std::string order;
  while (const auto item = queue.pop()) order += *item + " ";
  return order;
}

TEST(RoundRobinQueueTest, HoldersTakeTurns) {
  RoundRobinQueue<std::string> queue(100, 100);
  for (const char* const item : {"a1", "a2", "a3", "a4", "b1", "c1", "b2"}) {
    EXPECT_TRUE(queue.push(std::string(1, item[0]), item));
  }
  EXPECT_EQ(queue.pop(), "a1");
  EXPECT_TRUE(queue.push("d", "d1"));
  EXPECT_EQ(drained(queue), "b1 c1 a2 d1 b2 a3 a4 ");
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_TRUE(queue.push("a", "a5"));
  EXPECT_EQ(drained(queue), "a5 ");
}

TEST(RoundRobinQueueTest, AFullHolderLeavesRoomToOthers) {
  RoundRobinQueue<std::string> queue(3, 2);
  EXPECT_TRUE(queue.push("a", "a1"));
  EXPECT_TRUE(queue.push("a", "a2"));
  EXPECT_FALSE(queue.push("a", "a3"));
  EXPECT_TRUE(queue.push("b", "b1"));
  EXPECT_FALSE(queue.push("c", "c1")) << "all of them";
  EXPECT_EQ(queue.pop(), "a1");
  EXPECT_TRUE(queue.push("a", "a4"));
  EXPECT_EQ(drained(queue), "b1 a2 a4 ");
}

}  // namespace
}  // namespace heddle::server
