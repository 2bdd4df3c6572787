// SPDX-License-Identifier: Apache-2.0
// RankGroup: collectives among the ranks of one process. In a collective each rank contributes a
// tensor, waits until all ranks have contributed, reads the tensors of all ranks, and waits until
// all ranks have read. Communicator: the group together with the index of one rank.
//
// The group ends if a rank waits longer than the deadline, or calls abort() because of an error.
// Waiting ranks and all later calls then return the first error. So no rank waits for longer than
// the deadline, and none continues after a collective that is incomplete.
//
// Threading: thread-safe; each rank uses one thread. Cost: two waits per collective; allocates only
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

// The contribution of a rank to a collective. The tensor must stay valid until meet() returns.
struct Shown {
  const char* op = nullptr;  // name of the collective, a string literal; the same on all ranks
  TensorView tensor;
  int64_t columns = 0;  // columns of the result; the same on all ranks
  int64_t each = 0;     // gather_columns(): most columns of a rank, the same on all ranks; else 0
};

class RankGroup {
 public:
  // `deadline`: how long a rank waits for the others in a collective, without time during which
  // the process was stopped; 0: for ever.
  RankGroup(int64_t size, std::chrono::milliseconds deadline);

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(shown_.size()); }

  [[nodiscard]] std::chrono::milliseconds deadline() const { return deadline_; }

  // Takes part in a collective: waits until every rank has called meet(), calls use() with the
  // contributions of all ranks, indexed by rank, and waits until every rank's use() has returned.
  // Errors: kDeviceLost after the deadline, naming the ranks that are missing; kInternal if the
  // ranks' collectives, dtypes, numbers of rows or numbers of columns differ; the error that
  // abort() was called with.
  template <typename Use>
  Status meet(int64_t rank, const Shown& shown, const Use& use) {
    HEDDLE_RETURN_IF_ERROR(arrive(rank, shown));
    use(std::span<const Shown>(shown_));
    return leave(rank);
  }

  // Ends the group with the error `cause`; does nothing if it has ended. `cause` must not be OK.
  void abort(const Status& cause) HEDDLE_EXCLUDES(mutex_);

  // The error that ended the group, or OK.
  [[nodiscard]] Status status() const HEDDLE_EXCLUDES(mutex_);

 private:
  Status arrive(int64_t rank, const Shown& shown) HEDDLE_EXCLUDES(mutex_);
  Status leave(int64_t rank) HEDDLE_EXCLUDES(mutex_);
  Status wait_for_all(int64_t rank) HEDDLE_REQUIRES(mutex_);
  [[nodiscard]] Status check_alike() const HEDDLE_REQUIRES(mutex_);
  void end(const Status& cause) HEDDLE_REQUIRES(mutex_);

  const std::chrono::milliseconds deadline_;

  mutable Mutex mutex_;
  CondVar all_here_;
  std::vector<int64_t> num_steps_ HEDDLE_GUARDED_BY(mutex_);  // per rank: arrive(), leave() calls
  int64_t num_here_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t num_met_ HEDDLE_GUARDED_BY(mutex_) = 0;  // completed waits, two per collective
  Status failure_ HEDDLE_GUARDED_BY(mutex_);

  // The contribution of each rank, indexed by rank. A rank writes its entry in arrive(); all ranks
  // read it, without mutex_, between arrive() and leave().
  std::vector<Shown> shown_;
};

class Communicator {
 public:
  Communicator(std::shared_ptr<RankGroup> group, int64_t rank)
      : group_(std::move(group)), rank_(rank) {}

  [[nodiscard]] int64_t rank() const { return rank_; }

  [[nodiscard]] int64_t size() const { return group_->size(); }

  // RankGroup::meet() for this rank.
  template <typename Use>
  Status meet(const Shown& shown, const Use& use) const {
    return group_->meet(rank_, shown, use);
  }

 private:
  std::shared_ptr<RankGroup> group_;
  int64_t rank_;
};

}  // namespace heddle::distributed
