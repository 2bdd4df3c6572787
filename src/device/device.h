// SPDX-License-Identifier: Apache-2.0
// Device: where tensors live and kernels run. Memory, streams, events and capture, as CUDA has
// them; the CPU device is the simplest thing that keeps the same promises: its stream does
// everything at once.
//
// Ownership: a device outlives its buffers, streams and events.
// Threading: a thread calls make_current() once before it uses a device; allocations and
//            available_memory_bytes() are thread-safe; a stream is driven by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <heddle/status.h>

namespace heddle::device {

enum class DeviceKind { kCpu, kCuda };

// Owned memory, of a device or pinned on the host, zero-filled when it was allocated, aligned to at
// least 256 bytes.
class Buffer {
 public:
  // Gives the memory back.
  class Owner {
   public:
    virtual ~Owner() = default;
  };

  Buffer() = default;

  Buffer(std::unique_ptr<Owner> owner, std::byte* data, int64_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  // The address, on the device that allocated it: the host may read and write it only if the device
  // is the CPU or the memory is pinned.
  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] int64_t size() const { return size_; }

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  std::unique_ptr<Owner> owner_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// A point in a stream's work, set by Stream::record() as often as wanted. One that was never
// recorded counts as reached.
class Event {
 public:
  virtual ~Event() = default;

  // Error of both: kDeviceLost when the device failed before the event.
  [[nodiscard]] virtual Result<bool> reached() const = 0;
  // Blocks the calling thread, without spinning, until what the stream did before the event is
  // done.
  virtual Status wait() const = 0;

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

  // Between memory of the device, or between it and host memory that stays valid and unchanged
  // until the copy is done. From or to host memory that is not pinned the call may wait for the
  // copy.
  virtual Status copy(void* to, const void* from, int64_t num_bytes) = 0;
  // Every byte becomes `value`.
  virtual Status fill(void* to, std::byte value, int64_t num_bytes) = 0;

  Status zero(void* to, int64_t num_bytes) { return fill(to, std::byte{0}, num_bytes); }

  // A hint that these bytes are not read before they are written: a device that commits memory when
  // it is first touched takes back the whole memory pages among them. Their contents are undefined
  // afterwards, those of the bytes around them as they were.
  virtual Status discard(void* at, int64_t num_bytes) = 0;

  // Makes `event` mark the work enqueued so far, instead of its earlier mark.
  virtual Status record(Event& event) = 0;
  // Delays work enqueued from now on until `event` is reached, on whichever stream it was recorded.
  virtual Status wait_for(const Event& event) = 0;

  // Waits for everything enqueued. With several steps in flight, Event::wait() waits for one.
  virtual Status synchronize() = 0;

  // Whether everything enqueued is done, without waiting.
  [[nodiscard]] virtual Result<bool> is_idle() = 0;

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
  [[nodiscard]] virtual std::string name() const = 0;  // readable name, such as "cpu, 2 threads"
  [[nodiscard]] virtual bool can_capture() const = 0;
  [[nodiscard]] virtual int64_t available_memory_bytes() const = 0;
  [[nodiscard]] virtual int64_t total_memory_bytes() const = 0;  // used and free

  // Memory is returned to the system in pieces of this size (Stream::discard), so that a pool may
  // have more ids than memory. 0: an allocation keeps all its memory while it lives.
  [[nodiscard]] virtual int64_t release_granule_bytes() const = 0;

  // Makes this the device of the calling thread.
  virtual Status make_current() = 0;

  // Errors: kResourceExhausted, naming the size.
  virtual Result<Buffer> allocate(int64_t num_bytes) = 0;
  // Host memory that copies of a stream read and write without waiting.
  virtual Result<Buffer> allocate_pinned(int64_t num_bytes) = 0;

  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;
  virtual Result<std::unique_ptr<Event>> create_event() = 0;
};

}  // namespace heddle::device
