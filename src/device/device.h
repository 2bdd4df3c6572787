// SPDX-License-Identifier: Apache-2.0
// Device: where tensors live and kernels run. Memory, streams, events and capture, as CUDA has
// them; the CPU device is the simplest thing that keeps the same promises: its stream does
// everything at once.
//
// Ownership: a device outlives its buffers, streams and events. Threading: allocate() and
// available_memory_bytes() are thread-safe; a stream is driven by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <heddle/status.h>

namespace heddle::device {

enum class DeviceKind { kCpu, kCuda };

// Owned memory of a device, zero-filled when it was allocated, aligned to at least 256 bytes.
class Buffer {
 public:
  // What gives the memory back.
  class Owner {
   public:
    virtual ~Owner() = default;
  };

  Buffer() = default;

  Buffer(std::unique_ptr<Owner> owner, std::byte* data, int64_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  [[nodiscard]] std::byte* data() const { return data_; }  // an address of the device

  [[nodiscard]] int64_t size() const { return size_; }

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  std::unique_ptr<Owner> owner_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;

  // Seconds from `earlier`, an event of the same device, to this one; both must have been reached.
  [[nodiscard]] virtual Result<double> seconds_since(const Event& earlier) const = 0;
};

// Work recorded once, launched many times.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
};

// Work in order. Calls return before it is done; synchronize() waits.
// Error of every call: kDeviceLost when the device failed at something enqueued earlier.
class Stream {
 public:
  virtual ~Stream() = default;

  // Between memory of the device, or between it and host memory that stays valid until the copy is
  // done.
  virtual Status copy(void* to, const void* from, int64_t num_bytes) = 0;
  virtual Status zero(void* to, int64_t num_bytes) = 0;

  // A hint that nobody reads these bytes before writing them: a device that commits memory when it
  // is first touched takes back the whole memory pages among them. Their contents are undefined
  // afterwards, those of the bytes around them as they were.
  virtual Status discard(void* at, int64_t num_bytes) = 0;

  virtual Result<std::unique_ptr<Event>> record() = 0;
  // Holds back what is enqueued from now on until `event` is reached, on whichever stream it was
  // recorded.
  virtual Status wait_for(const Event& event) = 0;

  // The one place where a step waits for the device.
  virtual Status synchronize() = 0;

  // Records what is enqueued between the two calls instead of doing it.
  // Error: kUnimplemented where the device cannot (Device::can_capture).
  virtual Status begin_capture() = 0;
  virtual Result<std::unique_ptr<CapturedWork>> end_capture() = 0;
  virtual Status launch(const CapturedWork& work) = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceKind kind() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;  // for people: "cpu, 2 threads"
  [[nodiscard]] virtual bool can_capture() const = 0;
  [[nodiscard]] virtual int64_t available_memory_bytes() const = 0;

  // Error: kResourceExhausted, naming the size.
  virtual Result<Buffer> allocate(int64_t num_bytes) = 0;
  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;
};

}  // namespace heddle::device
