// SPDX-License-Identifier: Apache-2.0
// The terminal: which streams are one, text that came from there, progress bars, and Ctrl-C.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <heddle/status.h>

#include "core/mutex.h"

namespace heddle::tools {

inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as in shells

[[nodiscard]] bool stdin_is_terminal();
[[nodiscard]] bool stdout_is_terminal();
[[nodiscard]] bool stderr_is_terminal();

// Writes and flushes to standard output. False when its reader is gone.
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

  // `note` follows the bar: "512 tokens/s".
  void show(int64_t done, std::string_view note);
  void clear();

 private:
  int64_t total_;
  bool visible_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_drawn_;
};

// Handles SIGINT, SIGTERM and SIGHUP for the whole process: a thread waits for them, so that
// handlers may lock and allocate. Must be made before any other thread.
class Interrupts {
 public:
  // `count` is 1 for the first signal of this kind since the handler was set.
  using Handler = std::function<void(int signal, int count)>;

  Interrupts();

  // Without a handler a signal ends the process with exit code 128 + signal. Waits for a handler
  // that is running.
  void set_handler(Handler handler) HEDDLE_EXCLUDES(mutex_);

  // As set_handler(), for SIGHUP. Without a handler SIGHUP ends the process, unless the process was
  // started to ignore it (nohup).
  void set_hangup_handler(std::function<void()> handler) HEDDLE_EXCLUDES(mutex_);

 private:
  void wait_for_signals() HEDDLE_EXCLUDES(mutex_);

  Mutex mutex_;
  Handler handler_ HEDDLE_GUARDED_BY(mutex_);
  std::function<void()> on_hangup_ HEDDLE_GUARDED_BY(mutex_);
  int count_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

// The process's only one, made by main().
Interrupts& interrupts();

// For EngineOptions::on_load_progress and its kin. Threading: calls come from one thread.
std::function<void(int64_t done_bytes, int64_t total_bytes)> load_progress_bar();

// Templates are made of characters, and bytes in another encoding are none. `what` is the text in
// the user's terms: "the message". Error: kInvalidArgument, naming it, the byte and the remedy.
Status check_utf8(std::string_view what, std::string_view text);

}  // namespace heddle::tools
