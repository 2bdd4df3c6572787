// SPDX-License-Identifier: Apache-2.0
// RankThreads: the threads of the ranks of a group. All ranks carry out one task after the other;
// rank 0 is the thread that calls run().
//
// Threading: confined to the thread that calls run(). Cost: two wake-ups a task; allocates for
// errors alone, and what a Task allocates where it is made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <heddle/status.h>

#include "core/mutex.h"
#include "distributed/rank_group.h"

namespace heddle::distributed {

class RankThreads {
 public:
  // A part of a task; an exception becomes its error.
  using Task = std::function<Status(int64_t rank)>;

  // Error: kResourceExhausted when the system has no thread.
  static Result<std::unique_ptr<RankThreads>> start(std::shared_ptr<RankGroup> group);

  // wait_until_idle().
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls task(rank) for every rank at once and waits for all of them. A rank whose part fails ends
  // the group, so that no other one waits for it. Errors: the first cause, beginning with its rank;
  // kDeviceLost where a rank goes on for longer than the group's deadline, and up to half a second,
  // after rank 0 has ended: until wait_until_idle() returns it may still use all that the task
  // refers to. After an error every call fails.
  Status run(Task task);

  // Waits until no rank carries out a task: at once, but after that kDeviceLost.
  void wait_until_idle() HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] RankGroup& group() const { return *group_; }

 private:
  explicit RankThreads(std::shared_ptr<RankGroup> group);

  void serve(int64_t rank);
  void carry_out(const Task& task, int64_t rank);
  [[nodiscard]] bool all_ended() const HEDDLE_REQUIRES(mutex_);

  std::shared_ptr<RankGroup> group_;
  Mutex mutex_;
  CondVar begun_, ended_;
  Task task_ HEDDLE_GUARDED_BY(mutex_);              // stays as it is while a rank carries it out
  int64_t num_begun_ HEDDLE_GUARDED_BY(mutex_) = 0;  // tasks
  std::vector<int64_t> num_ended_ HEDDLE_GUARDED_BY(mutex_);  // by rank
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // of ranks 1 and above
};

}  // namespace heddle::distributed
