// SPDX-License-Identifier: Apache-2.0
#include "device/cpu_device.h"

#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "device/available_memory.h"
#include "device/host_buffer.h"

namespace heddle::device {

namespace {

class HostOwner final : public Buffer::Owner {
 public:
  explicit HostOwner(HostBuffer buffer) : buffer_(std::move(buffer)) {}

 private:
  HostBuffer buffer_;
};

class CpuEvent final : public Event {
 public:
  Result<bool> reached() const override { return true; }

  Status wait() const override { return {}; }

  void set(double seconds) { seconds_ = seconds; }

  Result<double> seconds_since(const Event& earlier) const override {
    const auto* start = dynamic_cast<const CpuEvent*>(&earlier);
    if (start == nullptr) return invalid_argument("the earlier event is another device's");
    return seconds_ - start->seconds_;
  }

 private:
  double seconds_ = 0;
};

class CpuStream final : public Stream {
 public:
  Status copy(void* to, const void* from, int64_t num_bytes) override {
    if (num_bytes > 0) std::memmove(to, from, static_cast<size_t>(num_bytes));
    return {};
  }

  Status fill(void* to, std::byte value, int64_t num_bytes) override {
    if (num_bytes > 0) std::memset(to, std::to_integer<int>(value), static_cast<size_t>(num_bytes));
    return {};
  }

  Status discard(void* at, int64_t num_bytes) override {
    release_host_memory(at, num_bytes);
    return {};
  }

  Status record(Event& event) override {
    auto* recorded = dynamic_cast<CpuEvent*>(&event);
    if (recorded == nullptr) return invalid_argument("the event to record is another device's");
    recorded->set(clock_.now_seconds());
    return {};
  }

  Status wait_for(const Event&) override { return {}; }  // recorded work is already done

  Status synchronize() override { return {}; }

  [[nodiscard]] Result<bool> is_idle() override { return true; }

  Status begin_capture() override { return unimplemented("the CPU does not capture its work"); }

  Result<std::unique_ptr<CapturedWork>> end_capture() override { return begin_capture(); }

  Status launch(const CapturedWork&) override { return begin_capture(); }

 private:
  SteadyClock clock_;
};

}  // namespace

std::string CpuDevice::name() const {
  const int threads = pool_.num_threads();
  return "cpu, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

int64_t CpuDevice::available_memory_bytes() const { return available_host_memory_bytes(); }

int64_t CpuDevice::total_memory_bytes() const { return total_host_memory_bytes(); }

int64_t CpuDevice::release_granule_bytes() const { return host_page_bytes(); }

Result<Buffer> CpuDevice::allocate(int64_t num_bytes) {
  HEDDLE_ASSIGN_OR_RETURN(HostBuffer memory, HostBuffer::allocate(num_bytes));
  std::byte* data = memory.data();
  return Buffer(std::make_unique<HostOwner>(std::move(memory)), data, num_bytes);
}

Result<std::unique_ptr<Stream>> CpuDevice::create_stream() {
  return std::unique_ptr<Stream>(std::make_unique<CpuStream>());
}

Result<std::unique_ptr<Event>> CpuDevice::create_event() {
  return std::unique_ptr<Event>(std::make_unique<CpuEvent>());
}

}  // namespace heddle::device
