// SPDX-License-Identifier: Apache-2.0
// The terminal: what is one, a progress bar, and Ctrl-C.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace heddle::tools {

inline constexpr int kExitInterrupted = 130;  // as shells say it: 128 + SIGINT

[[nodiscard]] bool stdin_is_terminal();
[[nodiscard]] bool stdout_is_terminal();
[[nodiscard]] bool stderr_is_terminal();

// Writes to standard output at once. False when nobody reads it any more.
bool print_now(std::string_view text);

// A line on standard error that redraws itself, when that is a terminal; silent otherwise.
//
// Threading: thread-confined.
class ProgressBar {
 public:
  explicit ProgressBar(int64_t total) : total_(total), visible_(stderr_is_terminal()) {}

  ~ProgressBar() { clear(); }

  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `note` stands behind the bar: "512 tokens/s".
  void show(int64_t done, std::string_view note);
  void clear();

 private:
  int64_t total_;
  bool visible_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_drawn_;
};

// Takes over SIGINT and SIGTERM for the whole process: a thread of its own waits for them, so that
// what a signal does may lock and allocate. Must be made before any other thread.
class Interrupts {
 public:
  // `count` is 1 for the first signal of this kind since the handler was set.
  using Handler = std::function<void(int signal, int count)>;

  Interrupts();

  // Until this is called, and after it was given none, a signal ends the process with 128 + signal.
  void set_handler(Handler handler);

 private:
  void wait_for_signals();

  std::mutex mutex_;
  Handler handler_;  // guarded by mutex_
  int count_ = 0;    // guarded by mutex_
};

// The process's only one, made by main().
Interrupts& interrupts();

}  // namespace heddle::tools
