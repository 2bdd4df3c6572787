// SPDX-License-Identifier: Apache-2.0
#include "media/media_memory.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::media {
namespace {

using ::testing::HasSubstr;

TEST(MediaMemory, SharesComeBack) {
  MediaMemory memory(100);
  {
    auto first = memory.acquire(60);
    auto second = memory.acquire(40);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(memory.used_bytes(), 100);
    MediaMemory::Share moved = std::move(*first);
    EXPECT_EQ(memory.used_bytes(), 100);
    moved = MediaMemory::Share();
    EXPECT_EQ(memory.used_bytes(), 40);
  }
  EXPECT_EQ(memory.used_bytes(), 0);
  EXPECT_TRUE(memory.acquire(100).ok());
}

TEST(MediaMemory, APictureThatNeverFitsIsRefusedAtOnce) {
  MediaMemory memory(100);
  const auto share = memory.acquire(101);
  ASSERT_FALSE(share.ok());
  EXPECT_EQ(share.error().fault, MediaFault::kTooExpensive);
  EXPECT_THAT(share.error().message, HasSubstr("needs 101 bytes of memory, and pictures have 100"));
}

TEST(MediaMemory, AWaitEndsWhenAsked) {
  MediaMemory memory(100);
  const auto all = memory.acquire(100);
  std::atomic<bool> stop = false, asked = false;
  std::thread waiter([&] {
    const auto share = memory.acquire(1, [&] {
      asked = true;
      return stop.load();
    });
    EXPECT_FALSE(share.ok());
    EXPECT_EQ(share.error().fault, MediaFault::kCancelled);
  });
  while (!asked) std::this_thread::yield();
  stop = true;
  memory.wake();
  waiter.join();
  EXPECT_EQ(memory.used_bytes(), 100);
}

TEST(MediaMemory, TheBudgetHoldsAndEveryoneGetsATurn) {
  MediaMemory memory(100);
  std::atomic<int64_t> in_use = 0, most = 0;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int64_t round = 0; round < 200; ++round) {
        const int64_t bytes = 1 + (37 * round + 61 * i) % 100;
        const auto share = memory.acquire(bytes);
        ASSERT_TRUE(share.ok());
        const int64_t now = in_use += bytes;
        for (int64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        in_use -= bytes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 100);
  EXPECT_EQ(memory.used_bytes(), 0);
}

}  // namespace
}  // namespace heddle::media
