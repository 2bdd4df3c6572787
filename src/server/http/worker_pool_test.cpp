// SPDX-License-Identifier: Apache-2.0
#include "server/http/worker_pool.h"

#include <functional>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/mutex.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;

// Work that records its start, and ends on the test's command.
class WorkerPoolTest : public ::testing::Test {
 protected:
  std::function<void()> work(const std::string& name) {
    return [this, name] {
      const MutexLock lock(mutex_);
      begun_.insert(name);
      changed_.notify_all();
      changed_.wait(mutex_, [&]() HEDDLE_REQUIRES(mutex_) { return ended_.contains(name); });
    };
  }

  std::set<std::string> wait_until_begun(size_t count) {
    const MutexLock lock(mutex_);
    changed_.wait(mutex_, [&]() HEDDLE_REQUIRES(mutex_) { return begun_.size() >= count; });
    return begun_;
  }

  void end(const std::string& name) {
    const MutexLock lock(mutex_);
    ended_.insert(name);
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::set<std::string> begun_ HEDDLE_GUARDED_BY(mutex_);
  std::set<std::string> ended_ HEDDLE_GUARDED_BY(mutex_);
};

TEST_F(WorkerPoolTest, LargeWorkLeavesAThreadToSmallWork) {
  WorkerPool pool(2, 8);
  for (const char* name : {"large 1", "large 2", "large 3"}) {
    EXPECT_TRUE(pool.submit(WorkSize::kLarge, work(name)));
  }
  EXPECT_TRUE(pool.submit(WorkSize::kSmall, work("small")));
  EXPECT_THAT(wait_until_begun(2), ElementsAre("large 1", "small"));
  end("small");
  end("large 1");
  EXPECT_THAT(wait_until_begun(3), ElementsAre("large 1", "large 2", "small"));
  end("large 2");
  EXPECT_THAT(wait_until_begun(4), ElementsAre("large 1", "large 2", "large 3", "small"));
  end("large 3");
}

TEST_F(WorkerPoolTest, OneThreadTakesWorkInTheOrderItCame) {
  WorkerPool pool(1, 8);
  EXPECT_TRUE(pool.submit(WorkSize::kSmall, work("1")));
  EXPECT_THAT(wait_until_begun(1), ElementsAre("1"));
  EXPECT_TRUE(pool.submit(WorkSize::kLarge, work("2")));
  EXPECT_TRUE(pool.submit(WorkSize::kSmall, work("3")));
  end("1");
  EXPECT_THAT(wait_until_begun(2), ElementsAre("1", "2"));
  end("2");
  EXPECT_THAT(wait_until_begun(3), ElementsAre("1", "2", "3"));
  end("3");
}

TEST_F(WorkerPoolTest, TheQueueIsBounded) {
  WorkerPool pool(1, 2);
  EXPECT_TRUE(pool.submit(WorkSize::kSmall, work("runs")));
  wait_until_begun(1);
  EXPECT_TRUE(pool.submit(WorkSize::kSmall, work("waits")));
  EXPECT_TRUE(pool.submit(WorkSize::kLarge, work("waits too")));
  EXPECT_FALSE(pool.submit(WorkSize::kSmall, work("one more")));
  EXPECT_FALSE(pool.submit(WorkSize::kLarge, work("one more")));
  // The pool ends what it still begins; the rest is dropped.
  for (const char* name : {"runs", "waits", "waits too"}) end(name);
}

}  // namespace
}  // namespace heddle::server
