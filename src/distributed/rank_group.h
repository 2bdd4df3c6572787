// SPDX-License-Identifier: Apache-2.0
// RankGroup: where the ranks of one process meet. In a collective each rank shows a tensor, reads
// those of all others, and goes on when all have read. Communicator: one rank's end of it.
//
// A rank that waits longer than the deadline, or calls abort() because of an error of its own, ends
// the group: every wait that is under way or follows returns the first error. Nothing waits for
// ever, and no rank computes on with numbers that another one does not have.
//
// Threading: thread-safe, one thread a rank. Cost: two wake-ups a collective; allocates nothing but
// for errors.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <heddle/status.h>

#include "core/mutex.h"
#include "core/tensor.h"

namespace heddle::distributed {

// The part of a rank in a collective. Both stay valid until the collective has returned.
struct Shown {
  const char* op = nullptr;  // a literal; all ranks must be in the same collective
  TensorView tensor;
  int64_t columns = 0;  // of the result: equal on all ranks
  int64_t each = 0;     // columns of a rank's share, where ranks show shares: equal on all ranks
};

class RankGroup {
 public:
  // `deadline`: how long a rank waits for the others in a collective; 0: for ever.
  RankGroup(int64_t size, std::chrono::milliseconds deadline);

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(shown_.size()); }

  [[nodiscard]] std::chrono::milliseconds deadline() const { return deadline_; }

  // Calls use(all), all being what each rank shows, by rank, once every rank is here. Returns when
  // all have used it. Errors: kDeviceLost after the deadline, naming the ranks that are missing;
  // kInternal where ranks are in different collectives or show tensors that do not go together;
  // that of abort().
  template <typename Use>
  Status meet(int64_t rank, const Shown& shown, const Use& use) {
    HEDDLE_RETURN_IF_ERROR(arrive(rank, shown));
    use(std::span<const Shown>(shown_));
    return leave(rank);
  }

  // Ends the group, unless it has ended. `cause` is not OK.
  void abort(const Status& cause) HEDDLE_EXCLUDES(mutex_);

  // The error that ended the group, or OK.
  [[nodiscard]] Status status() const HEDDLE_EXCLUDES(mutex_);

  // Collectives that `rank` has begun.
  [[nodiscard]] int64_t num_begun(int64_t rank) const HEDDLE_EXCLUDES(mutex_);

 private:
  Status arrive(int64_t rank, const Shown& shown) HEDDLE_EXCLUDES(mutex_);
  Status leave(int64_t rank) HEDDLE_EXCLUDES(mutex_);
  Status wait_for_all(int64_t rank) HEDDLE_REQUIRES(mutex_);
  [[nodiscard]] Status check_alike() const HEDDLE_REQUIRES(mutex_);
  void end(const Status& cause) HEDDLE_REQUIRES(mutex_);

  const std::chrono::milliseconds deadline_;

  mutable Mutex mutex_;
  CondVar all_here_;
  std::vector<int64_t> num_steps_ HEDDLE_GUARDED_BY(mutex_);  // by rank: arrivals and departures
  int64_t num_here_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t num_met_ HEDDLE_GUARDED_BY(mutex_) = 0;  // how often all were here
  Status failure_ HEDDLE_GUARDED_BY(mutex_);

  // By rank. Written by its rank before it arrives, read by all until it leaves.
  std::vector<Shown> shown_;
};

class Communicator {
 public:
  Communicator(std::shared_ptr<RankGroup> group, int64_t rank)
      : group_(std::move(group)), rank_(rank) {}

  [[nodiscard]] int64_t rank() const { return rank_; }

  [[nodiscard]] int64_t size() const { return group_->size(); }

  // As RankGroup::meet().
  template <typename Use>
  Status meet(const Shown& shown, const Use& use) const {
    return group_->meet(rank_, shown, use);
  }

 private:
  std::shared_ptr<RankGroup> group_;
  int64_t rank_;
};

}  // namespace heddle::distributed
