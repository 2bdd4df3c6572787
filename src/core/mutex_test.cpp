// SPDX-License-Identifier: Apache-2.0
#include "core/mutex.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace heddle {
namespace {

using std::chrono::steady_clock;

class Counter {
 public:
  void add(int count) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    count_ += count;
    changed_.notify_all();
  }

  void wait_for_at_least(int count) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    changed_.wait(mutex_, [&]() HEDDLE_REQUIRES(mutex_) { return count_ >= count; });
  }

  bool reaches(int count, std::chrono::milliseconds timeout) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return changed_.wait_for(mutex_, timeout,
                             [&]() HEDDLE_REQUIRES(mutex_) { return count_ >= count; });
  }

  bool reaches_before(int count, steady_clock::time_point deadline) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return changed_.wait_until(mutex_, deadline,
                               [&]() HEDDLE_REQUIRES(mutex_) { return count_ >= count; });
  }

  int count() HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return count_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

// Another thread's answer: try_lock() on the thread that holds the mutex is undefined.
bool is_locked(Mutex& mutex) {
  bool locked = true;
  std::thread([&] {
    if (!mutex.try_lock()) return;
    mutex.unlock();
    locked = false;
  }).join();
  return locked;
}

TEST(MutexTest, ExcludesOtherThreads) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) counter.add(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.count(), 40'000);
}

TEST(MutexTest, AScopedLockCanBeOpenedAndClosedAgain) {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    EXPECT_TRUE(is_locked(mutex));
    lock.unlock();
    EXPECT_FALSE(is_locked(mutex));
    lock.lock();
    EXPECT_TRUE(is_locked(mutex));
  }
  EXPECT_FALSE(is_locked(mutex));
  {
    MutexLock lock(mutex);
    lock.unlock();
  }
  EXPECT_FALSE(is_locked(mutex)) << "the end of the scope does not unlock twice";
}

TEST(CondVarTest, WaitsUntilTheConditionIsTrue) {
  Counter counter;
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) counter.add(1);
  });
  counter.wait_for_at_least(100);
  EXPECT_EQ(counter.count(), 100);
  other.join();
}

TEST(CondVarTest, ALimitedWaitSaysWhetherTheConditionBecameTrue) {
  Counter counter;
  counter.add(3);
  EXPECT_TRUE(counter.reaches(3, std::chrono::milliseconds(0)));
  EXPECT_FALSE(counter.reaches(4, std::chrono::milliseconds(1)));
  EXPECT_TRUE(counter.reaches_before(3, steady_clock::now()));
  EXPECT_FALSE(counter.reaches_before(4, steady_clock::now() + std::chrono::milliseconds(1)));

  std::thread other([&] { counter.add(1); });
  EXPECT_TRUE(counter.reaches(4, std::chrono::hours(1)));
  other.join();
}

TEST(CondVarTest, TheMutexIsFreeDuringAWaitAndLockedAfterIt) {
  Mutex mutex;
  CondVar changed;
  bool done = false;
  MutexLock lock(mutex);
  std::thread other([&] {
    const MutexLock other_lock(mutex);  // gets it only because the other thread waits
    done = true;
    changed.notify_one();
  });
  changed.wait(mutex, [&] { return done; });
  EXPECT_TRUE(is_locked(mutex));
  lock.unlock();
  other.join();
}

}  // namespace
}  // namespace heddle
