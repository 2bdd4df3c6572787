// SPDX-License-Identifier: Apache-2.0
// CpuDevice: host memory and a pool of compute threads. A stream executes work on the calling
// thread before the call returns, so waiting costs nothing and there is nothing to capture.
#pragma once

#include "device/device.h"
#include "device/thread_pool.h"

namespace heddle::device {

class CpuDevice final : public Device {
 public:
  // `num_threads` 0: one per physical core of the machine.
  explicit CpuDevice(int num_threads = 0) : pool_(num_threads) {}

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCpu; }

  [[nodiscard]] std::string name() const override;

  [[nodiscard]] bool can_capture() const override { return false; }

  [[nodiscard]] int64_t available_memory_bytes() const override;
  [[nodiscard]] int64_t total_memory_bytes() const override;
  [[nodiscard]] int64_t release_granule_bytes() const override;

  Status make_current() override { return {}; }

  Result<Buffer> allocate(int64_t num_bytes) override;

  Result<Buffer> allocate_pinned(int64_t num_bytes) override { return allocate(num_bytes); }

  Result<std::unique_ptr<Stream>> create_stream() override;
  Result<std::unique_ptr<Event>> create_event() override;

  [[nodiscard]] ThreadPool& pool() { return pool_; }

 private:
  ThreadPool pool_;
};

}  // namespace heddle::device
