// SPDX-License-Identifier: Apache-2.0
#include "distributed/rank_group.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/check.h"
#include "distributed/patience.h"

namespace heddle::distributed {

namespace {

std::string describe(const Shown& shown) {
  return fmt::format("{} with {} {} to {} columns, at most {} of a rank", shown.op,
                     to_string(shown.tensor.dtype), shown.tensor.shape.to_string(), shown.columns,
                     shown.each);
}

}  // namespace

RankGroup::RankGroup(int64_t size, std::chrono::milliseconds deadline)
    : deadline_(deadline),
      num_steps_(static_cast<size_t>(size), 0),
      shown_(static_cast<size_t>(size)) {
  HEDDLE_CHECK(size >= 1);
}

void RankGroup::abort(const Status& cause) {
  HEDDLE_CHECK(!cause.ok());
  const MutexLock lock(mutex_);
  end(cause);
}

Status RankGroup::status() const {
  const MutexLock lock(mutex_);
  return failure_;
}

void RankGroup::end(const Status& cause) {
  if (!failure_.ok()) return;
  failure_ = cause;
  all_here_.notify_all();
}

Status RankGroup::arrive(int64_t rank, const Shown& shown) {
  const MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  shown_[static_cast<size_t>(rank)] = shown;
  return wait_for_all(rank);
}

Status RankGroup::leave(int64_t rank) {
  const MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  return wait_for_all(rank);
}

// Waits until every rank has called this function as often as `rank`. A collective calls it twice:
// before and after the ranks read the contributions.
Status RankGroup::wait_for_all(int64_t rank) {
  ++num_steps_[static_cast<size_t>(rank)];
  const int64_t meeting = num_met_;
  if (++num_here_ == size()) {
    const bool before_reading = meeting % 2 == 0;
    if (const Status alike = check_alike(); before_reading && !alike.ok()) {
      end(alike);
      return failure_;
    }
    num_here_ = 0;
    ++num_met_;
    all_here_.notify_all();
    return {};
  }
  const auto is_over = [&]()
                           HEDDLE_REQUIRES(mutex_) { return num_met_ > meeting || !failure_.ok(); };
  if (deadline_.count() == 0) {
    all_here_.wait(mutex_, is_over);
  } else if (!wait_for_ranks(all_here_, mutex_, deadline_, is_over)) {
    std::string missing;
    for (size_t other = 0; other < num_steps_.size(); ++other) {
      if (num_steps_[other] > meeting) continue;
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", other);
    }
    end(device_lost(fmt::format("rank {} waited {} ms at collective {} ({}) for rank {}", rank,
                                deadline_.count(), meeting / 2,
                                shown_[static_cast<size_t>(rank)].op, missing)));
  }
  // If all ranks arrived, this rank continues even if the group has ended since, because its data
  // is complete. Its next call returns the error.
  return num_met_ > meeting ? ok_status() : failure_;
}

Status RankGroup::check_alike() const {
  const Shown& first = shown_.front();
  for (size_t rank = 1; rank < shown_.size(); ++rank) {
    const Shown& other = shown_[rank];
    const bool is_same = std::string_view(first.op) == other.op &&
                         first.tensor.dtype == other.tensor.dtype &&
                         first.tensor.shape.rank() == other.tensor.shape.rank() &&
                         first.tensor.shape[0] == other.tensor.shape[0] &&
                         first.columns == other.columns && first.each == other.each;
    if (is_same) continue;
    return internal_error(
        fmt::format("ranks are in different collectives: rank 0 in {}, rank {} in {}",
                    describe(first), rank, describe(other)));
  }
  return {};
}

}  // namespace heddle::distributed
