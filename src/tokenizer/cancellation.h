// SPDX-License-Identifier: Apache-2.0
// Cancellation of a long encode() whose result is not needed any more, because the client left or
// the server stops. The caller passes a CancellationCheck in EncodeOptions. The encoder calls it
// about every kPollBytes of text and, if it returns true, returns kCancelled.
//
//   const CancellationCheck gone = [&] { return connection.closed() || server.stopping(); };
//   auto ids = tokenizer.encode(text, {.is_cancelled = &gone});
//
// Threading: the check is called on the encoding thread while other threads may change what it
// reads, so it should read atomics (or a std::stop_token). A CancellationPoll is confined to one
// encode call.
#pragma once

#include <cstddef>
#include <functional>

namespace heddle::tokenizer {

// Returns true to stop; it is not called again after that. It is called every few milliseconds and
// should not cost more than a lock.
using CancellationCheck = std::function<bool()>;

class CancellationPoll {
 public:
  // Bytes between two checks: about a millisecond of normalising or splitting, ten of merging one
  // long word.
  static constexpr size_t kPollBytes = size_t{32} << 10;

  // `check` may be null: the call is then never cancelled. It must outlive the poll.
  explicit CancellationPoll(const CancellationCheck* check = nullptr) : check_(check) {}

  // Counts `bytes` bytes of work and, each time kPollBytes are reached, calls the check. Returns
  // true once the call is cancelled.
  bool cancelled_after(size_t bytes) {
    if (bytes < bytes_left_) {
      bytes_left_ -= bytes;
    } else {
      bytes_left_ = kPollBytes;
      if (check_ != nullptr && !cancelled_) cancelled_ = (*check_)();
    }
    return cancelled_;
  }

  [[nodiscard]] bool cancelled() const { return cancelled_; }

 private:
  const CancellationCheck* check_;
  size_t bytes_left_ = kPollBytes;
  bool cancelled_ = false;
};

}  // namespace heddle::tokenizer
