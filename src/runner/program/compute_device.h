// SPDX-License-Identifier: Apache-2.0
// ComputeDevice: the device on which a model is computed, with its stream and the context of its
// ops: the CPU with its threads, or a GPU with a library for dense products.
//
// Threading: confined to one thread at a time, which calls device().make_current() first.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "device/cpu_device.h"
#include "device/device.h"
#include "distributed/rank_group.h"
#include "ops/context.h"
#include "ops/gemm/dense_products.h"

namespace heddle::runner {

// The compute threads of each of `num_ranks` ranks that share `num_threads`, or the machine's
// physical cores for 0; at least one.
[[nodiscard]] int threads_of_rank(int num_threads, int64_t num_ranks);

class ComputeDevice {
 public:
  // `num_threads` 0: one per physical core of the machine. `exact`: exact mode (docs/numerics.md).
  // `first_thread`: the number of threads of lower ranks, which have the machine's first cores.
  static Result<std::unique_ptr<ComputeDevice>> open_cpu(int num_threads, bool exact,
                                                         int first_thread = 0);

  // Errors: those of device::open_cuda_device(), and those of ops::DenseProducts::create() for the
  // library.
  static Result<std::unique_ptr<ComputeDevice>> open_cuda(int index, bool exact);

  [[nodiscard]] device::Device& device() const { return *device_; }

  [[nodiscard]] device::Stream& stream() const { return *stream_; }

  [[nodiscard]] ops::Context& context() const { return *context_; }

  // Whether the host reads and writes the device's memory, so that results need no copy.
  [[nodiscard]] bool shares_memory_with_host() const {
    return device_->kind() == device::DeviceKind::kCpu;
  }

  // Makes it that of a rank of a group: its collectives meet there.
  void join(std::shared_ptr<distributed::RankGroup> group, int64_t rank) {
    context_->ranks = &ranks_.emplace(std::move(group), rank);
  }

  // The compute threads of the CPU; null for a GPU.
  [[nodiscard]] device::ThreadPool* pool() const { return pool_; }

 private:
  ComputeDevice() = default;

  std::unique_ptr<device::Device> device_;
  device::ThreadPool* pool_ = nullptr;  // owned by device_; null for a GPU
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<ops::DenseProducts> products_;
  std::optional<distributed::Communicator> ranks_;
  std::unique_ptr<ops::Context> context_;
};

}  // namespace heddle::runner
