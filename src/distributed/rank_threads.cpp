// SPDX-License-Identifier: Apache-2.0
#include "distributed/rank_threads.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/no_thread.h"

namespace heddle::distributed {

namespace {

constexpr std::chrono::milliseconds kMostPatience{500};

}  // namespace

RankThreads::RankThreads(std::shared_ptr<RankGroup> group)
    : group_(std::move(group)), num_ended_(static_cast<size_t>(group_->size()), 0) {}

Result<std::unique_ptr<RankThreads>> RankThreads::start(std::shared_ptr<RankGroup> group) {
  std::unique_ptr<RankThreads> ranks(new RankThreads(std::move(group)));
  try {
    for (int64_t rank = 1; rank < ranks->group_->size(); ++rank) {
      ranks->threads_.emplace_back([raw = ranks.get(), rank] { raw->serve(rank); });
    }
  } catch (const std::system_error& error) {
    return no_thread("for a rank", error);
  }
  return ranks;
}

RankThreads::~RankThreads() {
  wait_until_idle();
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool RankThreads::all_ended() const {
  const int64_t number = num_begun_;
  return std::all_of(num_ended_.begin() + 1, num_ended_.end(),
                     [number](int64_t ended) { return ended == number; });
}

void RankThreads::wait_until_idle() {
  const MutexLock lock(mutex_);
  ended_.wait(mutex_, [this]() HEDDLE_REQUIRES(mutex_) { return all_ended(); });
}

Status RankThreads::run(Task task) {
  HEDDLE_RETURN_IF_ERROR(group_->status());
  const Task* own = nullptr;
  {
    const MutexLock lock(mutex_);
    task_ = std::move(task);
    own = &task_;
    ++num_begun_;
  }
  begun_.notify_all();
  carry_out(*own, 0);
  // Longer than the deadline, so that a rank that waits in a collective fails first, with an error
  // that names the collective. Once there is an error, a short wait is enough.
  const std::chrono::milliseconds more = std::min(group_->deadline(), kMostPatience);
  const std::chrono::milliseconds patience =
      group_->status().ok() ? group_->deadline() + more : more;
  const MutexLock lock(mutex_);
  const auto have_ended = [this]() HEDDLE_REQUIRES(mutex_) { return all_ended(); };
  if (group_->deadline().count() == 0) {
    ended_.wait(mutex_, have_ended);
  } else if (!ended_.wait_for(mutex_, patience, have_ended)) {
    const int64_t number = num_begun_;
    const auto late = std::find_if(num_ended_.begin() + 1, num_ended_.end(),
                                   [number](int64_t ended) { return ended != number; });
    group_->abort(device_lost(fmt::format("rank {} did not end its step within {} ms of rank 0",
                                          late - num_ended_.begin(), patience.count())));
  }
  return group_->status();
}

void RankThreads::serve(int64_t rank) {
  for (int64_t number = 1;; ++number) {
    const Task* task = nullptr;
    {
      const MutexLock lock(mutex_);
      begun_.wait(mutex_,
                  [&]() HEDDLE_REQUIRES(mutex_) { return stopping_ || num_begun_ >= number; });
      if (stopping_) return;
      task = &task_;
    }
    carry_out(*task, rank);
    {
      const MutexLock lock(mutex_);
      num_ended_[static_cast<size_t>(rank)] = number;
    }
    ended_.notify_one();
  }
}

void RankThreads::carry_out(const Task& task, int64_t rank) {
  Status status;
  try {
    status = task(rank);
  } catch (const std::exception& error) {
    status = internal_error(fmt::format("a step threw: {}", error.what()));
  }
  // abort() ignores this error if another rank has failed before.
  if (!status.ok()) group_->abort(status.with_context(fmt::format("rank {}", rank)));
}

}  // namespace heddle::distributed
