// SPDX-License-Identifier: Apache-2.0
// Mutex, MutexLock and CondVar: std::mutex and std::condition_variable with annotations with which
// clang proves who holds which lock (-Wthread-safety, an error in our clang builds). clang cannot
// analyse the types of libstdc++, so all code outside core/ uses these; a test in
// tests/architecture rejects bare ones.
//
//   class Inbox {
//    public:
//     void add(Message message) HEDDLE_EXCLUDES(mutex_) {
//       const MutexLock lock(mutex_);
//       messages_.push_back(std::move(message));
//       arrived_.notify_one();
//     }
//
//     Message take() HEDDLE_EXCLUDES(mutex_) {
//       const MutexLock lock(mutex_);
//       arrived_.wait(mutex_, [this]() HEDDLE_REQUIRES(mutex_) { return !messages_.empty(); });
//       return take_first();
//     }
//
//    private:
//     Message take_first() HEDDLE_REQUIRES(mutex_);
//
//     Mutex mutex_;
//     CondVar arrived_;
//     std::deque<Message> messages_ HEDDLE_GUARDED_BY(mutex_);
//   };
//
// The analysis treats a lambda as a separate function: one that runs with the lock held, such as
// the condition of a wait, needs HEDDLE_REQUIRES after its parameters.
//
// Cost: that of the std types; the annotations are compiled away.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define HEDDLE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define HEDDLE_THREAD_ANNOTATION(x)
#endif

// A member that may be read and written only while the mutex is locked. For a pointer,
// HEDDLE_PT_GUARDED_BY guards the value that it points to.
#define HEDDLE_GUARDED_BY(mutex) HEDDLE_THREAD_ANNOTATION(guarded_by(mutex))
#define HEDDLE_PT_GUARDED_BY(mutex) HEDDLE_THREAD_ANNOTATION(pt_guarded_by(mutex))

// A function whose caller must have locked the mutex, or must not have locked it.
#define HEDDLE_REQUIRES(...) HEDDLE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define HEDDLE_EXCLUDES(...) HEDDLE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

// A function that locks the mutex and returns with it locked, or that unlocks it. Without an
// argument the mutex is the object itself.
#define HEDDLE_ACQUIRE(...) HEDDLE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define HEDDLE_TRY_ACQUIRE(...) HEDDLE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define HEDDLE_RELEASE(...) HEDDLE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

// Types that are locks, and types that hold a lock for as long as they live.
#define HEDDLE_CAPABILITY(name) HEDDLE_THREAD_ANNOTATION(capability(name))
#define HEDDLE_SCOPED_CAPABILITY HEDDLE_THREAD_ANNOTATION(scoped_lockable)

// Switches the analysis off for one function. A comment at the function says why it is correct.
#define HEDDLE_NO_THREAD_SAFETY_ANALYSIS HEDDLE_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace heddle {

// A mutex; not recursive.
class HEDDLE_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() HEDDLE_ACQUIRE() { mutex_.lock(); }

  [[nodiscard]] bool try_lock() HEDDLE_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

  void unlock() HEDDLE_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a lock on a mutex for as long as it lives, except between unlock() and lock().
class HEDDLE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HEDDLE_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }

  ~MutexLock() HEDDLE_RELEASE() {
    if (locked_) mutex_.unlock();
  }

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() HEDDLE_RELEASE() {
    locked_ = false;
    mutex_.unlock();
  }

  void lock() HEDDLE_ACQUIRE() {
    mutex_.lock();
    locked_ = true;
  }

 private:
  Mutex& mutex_;
  bool locked_ = true;
};

// Waits until another thread notifies. The mutex must be locked when a wait is called; it is
// unlocked while waiting and locked again when the wait returns. Conditions run with it locked.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void notify_one() { condition_.notify_one(); }

  void notify_all() { condition_.notify_all(); }

  // Waits until `condition` is true.
  template <typename Condition>
  void wait(Mutex& mutex, Condition condition) HEDDLE_REQUIRES(mutex) {
    Locked lock(mutex);
    condition_.wait(lock.native, Unchecked<Condition>{condition});
  }

  // Waits until `condition` is true or the deadline has passed. Returns condition().
  template <typename Condition, typename Clock, typename Duration>
  [[nodiscard]] bool wait_until(Mutex& mutex,
                                const std::chrono::time_point<Clock, Duration>& deadline,
                                Condition condition) HEDDLE_REQUIRES(mutex) {
    Locked lock(mutex);
    return condition_.wait_until(lock.native, deadline, Unchecked<Condition>{condition});
  }

  // Waits until `condition` is true or `timeout` has passed, by the steady clock. Returns
  // condition().
  template <typename Condition, typename Rep, typename Period>
  [[nodiscard]] bool wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& timeout,
                              Condition condition) HEDDLE_REQUIRES(mutex) {
    Locked lock(mutex);
    return condition_.wait_for(lock.native, timeout, Unchecked<Condition>{condition});
  }

 private:
  // The caller's lock in the form that std::condition_variable needs. The caller remains its owner.
  struct Locked {
    explicit Locked(Mutex& mutex) : native(mutex.mutex_, std::adopt_lock) {}

    ~Locked() { native.release(); }

    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

    std::unique_lock<std::mutex> native;
  };

  // Calls a condition that requires the mutex. The mutex is locked here, but the analysis cannot
  // know that `mutex` is the object that the condition's annotation names.
  template <typename Condition>
  struct Unchecked {
    Condition& condition;

    bool operator()() const HEDDLE_NO_THREAD_SAFETY_ANALYSIS { return condition(); }
  };

  std::condition_variable condition_;
};

}  // namespace heddle
