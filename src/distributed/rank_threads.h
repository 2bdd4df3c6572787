// SPDX-License-Identifier: Apache-2.0
// RankThreads: the threads of the ranks of a group. All ranks carry out one task after the other;
// rank 0 is the thread that calls run().
//
// Threading: confined to the thread that calls run(). Cost: two wake-ups a task; allocates for
// errors alone, and what a Task allocates where it is made.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <heddle/status.h>

#include "core/mutex.h"
#include "distributed/rank_group.h"

namespace heddle::distributed {

class RankThreads {
 public:
  // The work of one rank. An exception that it throws becomes the rank's error.
  using Task = std::function<Status(int64_t rank)>;

  // A rank that still computes `grace` after the group has ended hangs: the error is logged and the
  // process aborted, because the memory that the rank uses cannot be freed. Without a deadline of
  // the group all waits are without limit. Error: kResourceExhausted if the system cannot create a
  // thread.
  static Result<std::unique_ptr<RankThreads>> start(
      std::shared_ptr<RankGroup> group, std::optional<std::chrono::milliseconds> grace = {});

  // Calls wait_until_idle(), then ends the threads.
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls task(rank) on all ranks at once and waits for them. If a rank fails, it ends the group,
  // so that no other rank waits for it. Errors: the first error of a rank, prefixed with the rank;
  // kDeviceLost if a rank still runs after rank 0 has finished and the group's deadline, plus at
  // most half a second, has passed. After an error every call fails, and a rank may still use what
  // the task refers to until wait_until_idle() returns.
  Status run(Task task);

  // Waits until no rank runs a task. Returns at once unless run() failed before all ranks finished;
  // then it waits for the grace period, and aborts the process if a rank still computes.
  void wait_until_idle() HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] RankGroup& group() const { return *group_; }

 private:
  RankThreads(std::shared_ptr<RankGroup> group, std::chrono::milliseconds grace);

  void serve(int64_t rank);
  void carry_out(const Task& task, int64_t rank);
  // The first of these ranks that has not finished its task; -1: there is none.
  [[nodiscard]] int64_t first_late(int64_t begin, int64_t end) const HEDDLE_REQUIRES(mutex_);
  void wait_or_abort(int64_t begin, int64_t end) HEDDLE_REQUIRES(mutex_);

  std::shared_ptr<RankGroup> group_;
  const std::chrono::milliseconds grace_;
  Mutex mutex_;
  CondVar begun_, ended_;
  Task task_ HEDDLE_GUARDED_BY(mutex_);              // must not change while a rank runs the task
  int64_t num_begun_ HEDDLE_GUARDED_BY(mutex_) = 0;  // number of tasks that began
  std::vector<int64_t> num_ended_ HEDDLE_GUARDED_BY(mutex_);  // per rank: its finished tasks
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // threads of ranks 1 and above
};

}  // namespace heddle::distributed
