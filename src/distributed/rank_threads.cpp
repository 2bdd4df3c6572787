// SPDX-License-Identifier: Apache-2.0
#include "distributed/rank_threads.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "core/no_thread.h"
#include "distributed/patience.h"

namespace heddle::distributed {

namespace {

constexpr std::chrono::milliseconds kMostPatience{500};
constexpr std::chrono::milliseconds kLeastGrace{5'000};

}  // namespace

RankThreads::RankThreads(std::shared_ptr<RankGroup> group, std::chrono::milliseconds grace)
    : group_(std::move(group)), grace_(grace), num_ended_(static_cast<size_t>(group_->size()), 0) {}

Result<std::unique_ptr<RankThreads>> RankThreads::start(
    std::shared_ptr<RankGroup> group, std::optional<std::chrono::milliseconds> grace) {
  const auto usual = std::max(group->deadline(), kLeastGrace);
  std::unique_ptr<RankThreads> ranks(new RankThreads(std::move(group), grace.value_or(usual)));
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

int64_t RankThreads::first_late(int64_t begin, int64_t end) const {
  for (int64_t rank = begin; rank < end; ++rank) {
    if (num_ended_[static_cast<size_t>(rank)] != num_begun_) return rank;
  }
  return -1;
}

// Waits for the ranks [begin, end) of a group that has ended, and aborts the process if one of them
// does not finish its task.
void RankThreads::wait_or_abort(int64_t begin, int64_t end) {
  const auto have_ended = [&]() HEDDLE_REQUIRES(mutex_) { return first_late(begin, end) < 0; };
  if (group_->deadline().count() == 0) return ended_.wait(mutex_, have_ended);
  if (wait_for_ranks(ended_, mutex_, grace_, have_ended)) return;
  log_error(fmt::format("rank {} still computes {} ms after the ranks ended ({}); aborting",
                        first_late(begin, end), grace_.count(), group_->status().message()));
  std::abort();
}

void RankThreads::wait_until_idle() {
  const MutexLock lock(mutex_);
  if (first_late(1, group_->size()) >= 0) wait_or_abort(1, group_->size());
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
  num_ended_[0] = num_begun_;
  ended_.notify_all();
  const int64_t size = group_->size();
  const auto have_ended = [&]() HEDDLE_REQUIRES(mutex_) { return first_late(1, size) < 0; };
  if (group_->deadline().count() == 0) {
    ended_.wait(mutex_, have_ended);
  } else if (!wait_for_ranks(ended_, mutex_, patience, have_ended)) {
    group_->abort(device_lost(fmt::format("rank {} did not end its step within {} ms of rank 0",
                                          first_late(1, size), patience.count())));
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
    const MutexLock lock(mutex_);
    num_ended_[static_cast<size_t>(rank)] = number;
    ended_.notify_all();
    // If rank 0 hangs, run() does not return, and nobody else notices it.
    if (!group_->status().ok()) wait_or_abort(0, 1);
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
