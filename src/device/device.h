// SPDX-License-Identifier: Apache-2.0
// Device: where tensors are stored and kernels run. Its memory, streams, events and captures are
// modelled after CUDA. The CPU device is the simplest implementation of the same contract: its
// stream executes everything immediately.
//
// Ownership: a device must outlive its buffers, streams and events.
// Threading: a thread calls make_current() once before it uses a device; allocations and
//            available_memory_bytes() are thread-safe; a stream is used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <heddle/status.h>

namespace heddle::device {

enum class DeviceKind { kCpu, kCuda };

// Owned memory of a device, or pinned memory of the host. Zero-filled when allocated, aligned to at
// least 256 bytes.
class Buffer {
 public:
  // Frees the memory in its destructor.
  class Owner {
   public:
    virtual ~Owner() = default;
  };

  Buffer() = default;

  Buffer(std::unique_ptr<Owner> owner, std::byte* data, int64_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  // The address on the device that allocated it. The host may read and write it only if the device
  // is the CPU or the memory is pinned.
  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] int64_t size() const { return size_; }

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  std::unique_ptr<Owner> owner_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// A point in a stream's work, set by Stream::record(), which may be called repeatedly. An event
// that was never recorded counts as reached.
class Event {
 public:
  virtual ~Event() = default;

  // Error of reached() and wait(): kDeviceLost if the device failed before the event.
  [[nodiscard]] virtual Result<bool> reached() const = 0;
  // Blocks the calling thread, without spinning, until the stream's work before the event is done.
  virtual Status wait() const = 0;

  // Seconds between `earlier`, an event of the same device, and this event; both must have been
  // reached.
  [[nodiscard]] virtual Result<double> seconds_since(const Event& earlier) const = 0;
};

// Work that was recorded once and can be launched many times.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
};

// A queue of work that is executed in order. Calls return before the work is done; synchronize()
// waits for it. Error of every call: kDeviceLost if the device failed at work enqueued earlier.
class Stream {
 public:
  virtual ~Stream() = default;

  // Copies within the device's memory, or between it and host memory that must stay valid and
  // unchanged until the copy is done. If the host memory is not pinned, the call may wait for the
  // copy.
  virtual Status copy(void* to, const void* from, int64_t num_bytes) = 0;
  // Sets every byte to `value`.
  virtual Status fill(void* to, std::byte value, int64_t num_bytes) = 0;

  Status zero(void* to, int64_t num_bytes) { return fill(to, std::byte{0}, num_bytes); }

  // A hint that these bytes are written before they are read again. A device that commits memory
  // when it is first touched frees the whole memory pages among them. Their contents are undefined
  // afterwards; bytes around them do not change.
  virtual Status discard(void* at, int64_t num_bytes) = 0;

  // Sets `event` to the end of the work enqueued so far. An earlier setting is lost.
  virtual Status record(Event& event) = 0;
  // Delays work enqueued from now on until `event` is reached; it may belong to another stream.
  virtual Status wait_for(const Event& event) = 0;

  // Waits for everything enqueued. To wait for one of several steps in flight, use Event::wait().
  virtual Status synchronize() = 0;

  // Whether everything enqueued is done, without waiting.
  [[nodiscard]] virtual Result<bool> is_idle() = 0;

  // Between the two calls work is recorded instead of executed. Error: kUnimplemented if the device
  // cannot capture (Device::can_capture).
  virtual Status begin_capture() = 0;
  virtual Result<std::unique_ptr<CapturedWork>> end_capture() = 0;
  virtual Status launch(const CapturedWork& work) = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceKind kind() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;  // for people, such as "cpu, 2 threads"
  [[nodiscard]] virtual bool can_capture() const = 0;
  [[nodiscard]] virtual int64_t available_memory_bytes() const = 0;
  [[nodiscard]] virtual int64_t total_memory_bytes() const = 0;  // used and free memory

  // Size of the pieces in which memory can return to the system (Stream::discard), so that a pool
  // may have more ids than memory. 0: an allocation keeps all its memory as long as it lives.
  [[nodiscard]] virtual int64_t release_granule_bytes() const = 0;

  // Makes this device the current one of the calling thread.
  virtual Status make_current() = 0;

  // Errors: kResourceExhausted, with the size.
  virtual Result<Buffer> allocate(int64_t num_bytes) = 0;
  // Host memory that copies of a stream can read and write without making the call wait.
  virtual Result<Buffer> allocate_pinned(int64_t num_bytes) = 0;

  virtual Result<std::unique_ptr<Stream>> create_stream() = 0;
  virtual Result<std::unique_ptr<Event>> create_event() = 0;
};

}  // namespace heddle::device
