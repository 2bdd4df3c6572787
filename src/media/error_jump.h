// SPDX-License-Identifier: Apache-2.0
// How the error functions of C libraries return to C++: libpng and libjpeg expect theirs never to
// return, so they jump. The jump skips destructors: code that run() runs holds nothing with one.
//
// Threading: thread-confined.
#pragma once

#include <array>
#include <csetjmp>
#include <cstddef>

namespace heddle::media {

class ErrorJump {
 public:
  // False if `body` ended in fail().
  template <typename Body>
  [[nodiscard]] bool run(const Body& body) {
    if (setjmp(target_) != 0) return false;
    body();
    return true;
  }

  // Only while run() is on the stack. The message is copied and may be cut.
  [[noreturn]] void fail(const char* message) {
    size_t length = 0;
    for (; length + 1 < message_.size() && message[length] != '\0'; ++length) {
      message_[length] = message[length];
    }
    message_[length] = '\0';
    std::longjmp(target_, 1);
  }

  // The caller asked to stop: ends as fail(), and stopped() is true.
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
