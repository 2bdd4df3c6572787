// SPDX-License-Identifier: Apache-2.0
// ErrorJump: returns from the error callbacks of libpng and libjpeg to C++. The libraries do not
// allow these callbacks to return, so they jump. The jump skips destructors: code called by run()
// must not hold objects that have one.
//
// Threading: thread-confined.
#pragma once

#include <array>
#include <csetjmp>
#include <cstddef>

namespace heddle::media {

class ErrorJump {
 public:
  // Calls `body`. Returns false if `body` ended in fail().
  template <typename Body>
  [[nodiscard]] bool run(const Body& body) {
    if (setjmp(target_) != 0) return false;
    body();
    return true;
  }

  // Ends `body`. Only to be called while run() is on the stack. The message is copied and may be
  // cut short.
  [[noreturn]] void fail(const char* message) {
    size_t length = 0;
    for (; length + 1 < message_.size() && message[length] != '\0'; ++length) {
      message_[length] = message[length];
    }
    message_[length] = '\0';
    std::longjmp(target_, 1);
  }

  // Ends `body` like fail(), because the caller asked to stop; stopped() is then true.
  [[noreturn]] void stop() {
    stopped_ = true;
    fail("stopped");
  }

  [[nodiscard]] bool stopped() const { return stopped_; }

  [[nodiscard]] const char* message() const { return message_.data(); }

 private:
  std::jmp_buf target_;
  std::array<char, 200> message_{};
  bool stopped_ = false;
};

}  // namespace heddle::media
