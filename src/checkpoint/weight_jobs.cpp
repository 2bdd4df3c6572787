// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_jobs.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/weight_stage.h"
#include "core/mutex.h"

namespace heddle::checkpoint {
namespace {

class WeightJobRun {
 public:
  WeightJobRun(const WeightJobs& jobs, const LoadOptions& options)
      : jobs_(jobs), options_(options) {
    for (const CopyJob& job : jobs.copies) {
      total_bytes_ += job.num_bytes();
      largest_piece_ = std::max(largest_piece_, job.num_bytes());
    }
    for (const PackedPlacement& placement : jobs.packed) {
      for (size_t i = 0; i < placement.load.num_jobs(); ++i) {
        packed_jobs_.push_back({&placement, i});
        total_bytes_ += placement.load.job_bytes(i);
      }
    }
    statuses_.resize(jobs.copies.size() + packed_jobs_.size());
  }

  Status run() {
    std::vector<std::jthread> helpers;
    const int64_t useful = std::max<int64_t>(1, total_bytes_ / kCopyJobElements);
    for (int64_t i = 1; i < std::min<int64_t>(num_threads(), useful); ++i) {
      helpers.emplace_back([this] { work(false); });
    }
    work(static_cast<bool>(options_.progress));
    helpers.clear();
    if (is_cancelled()) return cancelled("loading the weights was given up");
    if (options_.progress) options_.progress(total_bytes_, total_bytes_);
    for (Status& status : statuses_) {
      if (!status.ok()) return std::move(status);
    }
    const MutexLock lock(mutex_);
    return std::move(stages_status_);
  }

 private:
  struct PackedJob {
    const PackedPlacement* placement;
    size_t index;
  };

  void work(bool report) {
    if (options_.device == nullptr) return run_all(nullptr, report);
    Status status = stage_all(report);
    if (status.ok()) return;
    const MutexLock lock(mutex_);
    stages_status_ = std::move(status);
  }

  Status stage_all(bool report) {
    HEDDLE_RETURN_IF_ERROR(options_.device->make_current());
    HEDDLE_ASSIGN_OR_RETURN(WeightStage stage,
                            WeightStage::create(*options_.device, jobs_.arena, largest_piece_));
    run_all(&stage, report);
    return stage.finish();
  }

  // Runs jobs until none is left. `stage`: null if the weights are in host memory.
  void run_all(WeightStage* stage, bool report) {
    for (size_t index = next_job_++; index < statuses_.size() && !is_cancelled();
         index = next_job_++) {
      const int64_t bytes = run_job(index, stage);
      const int64_t done = done_bytes_.fetch_add(bytes) + bytes;
      if (report && done < total_bytes_) options_.progress(done, total_bytes_);
    }
  }

  int64_t run_job(size_t index, WeightStage* stage) {
    if (index < jobs_.copies.size()) {
      const CopyJob& job = jobs_.copies[index];
      const StoredWeight& stored = jobs_.pieces[job.piece];
      if (stage != nullptr) {
        statuses_[index] = stage_copy_job(jobs_.source, stored, job, *stage);
      } else {
        run_copy_job(jobs_.source, stored, job, jobs_.arena);
      }
      return job.num_bytes();
    }
    const auto& [placement, job] = packed_jobs_[index - jobs_.copies.size()];
    statuses_[index] = run_packed_job(*placement, job, stage);
    return placement->load.job_bytes(job);
  }

  [[nodiscard]] Status run_packed_job(const PackedPlacement& placement, size_t job,
                                      WeightStage* stage) const {
    const PackedLoad& load = placement.load;
    if (stage == nullptr) return load.run_job(job, jobs_.source);
    if (!placement.dense_begin) return load.stage_job(job, jobs_.source, *stage);
    return load.stage_dense_job(job, jobs_.source, *placement.dense_begin, jobs_.dequantised_dtype,
                                *stage);
  }

  [[nodiscard]] bool is_cancelled() const {
    return options_.cancelled != nullptr && options_.cancelled->load(std::memory_order_relaxed);
  }

  [[nodiscard]] int num_threads() const {
    if (options_.num_threads > 0) return options_.num_threads;
    return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  }

  const WeightJobs& jobs_;
  const LoadOptions& options_;
  std::vector<PackedJob> packed_jobs_;
  int64_t total_bytes_ = 0;
  int64_t largest_piece_ = bytes_of(DType::kF32, kCopyJobElements);
  std::vector<Status> statuses_;  // per job, written by its thread
  std::atomic<size_t> next_job_ = 0;
  std::atomic<int64_t> done_bytes_ = 0;
  Mutex mutex_;
  Status stages_status_ HEDDLE_GUARDED_BY(mutex_);  // first error of a stage that does not belong
                                                    // to a single job
};

}  // namespace

Status run_weight_jobs(const WeightJobs& jobs, const LoadOptions& options) {
  return WeightJobRun(jobs, options).run();
}

}  // namespace heddle::checkpoint
