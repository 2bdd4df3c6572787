// SPDX-License-Identifier: Apache-2.0
// The terminal: which streams are terminals, checks of typed text, progress bars, and Ctrl-C.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <heddle/status.h>

#include "core/mutex.h"

namespace heddle::tools {

inline constexpr int kExitInterrupted = 130;  // exit code after Ctrl-C: 128 + SIGINT, as in shells

[[nodiscard]] bool stdin_is_terminal();
[[nodiscard]] bool stdout_is_terminal();
[[nodiscard]] bool stderr_is_terminal();

// Writes to standard output and flushes. Returns false if the reader has closed it.
bool print_now(std::string_view text);

// ProgressBar: a line on standard error that redraws itself; silent unless that is a terminal.
//
// Threading: thread-confined.
class ProgressBar {
 public:
  explicit ProgressBar(int64_t total) : total_(total), visible_(stderr_is_terminal()) {}

  ~ProgressBar() { clear(); }

  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws the bar. `note` is shown after it, as "512 tokens/s".
  void show(int64_t done, std::string_view note);
  void clear();

 private:
  int64_t total_;
  bool visible_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_drawn_;
};

// Handles SIGINT, SIGTERM and SIGHUP for the whole process. A thread waits for them, so that
// handlers may lock and allocate. Must be created before any other thread.
class Interrupts {
 public:
  // `count` is 1 for the first signal of its kind since the handler was set.
  using Handler = std::function<void(int signal, int count)>;

  Interrupts();

  // Sets the handler of SIGINT and SIGTERM. Without a handler a signal ends the process with exit
  // code 128 + signal. Waits for a handler that is running.
  void set_handler(Handler handler) HEDDLE_EXCLUDES(mutex_);

  // Sets the handler of SIGHUP. Without a handler SIGHUP ends the process, unless it was started to
  // ignore that signal (nohup).
  void set_hangup_handler(std::function<void()> handler) HEDDLE_EXCLUDES(mutex_);

 private:
  void wait_for_signals() HEDDLE_EXCLUDES(mutex_);

  Mutex mutex_;
  Handler handler_ HEDDLE_GUARDED_BY(mutex_);
  std::function<void()> on_hangup_ HEDDLE_GUARDED_BY(mutex_);
  int count_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

// The only instance of the process, created by main().
Interrupts& interrupts();

// A progress bar for EngineOptions::on_load_progress and similar callbacks. Threading: all calls
// come from one thread.
std::function<void(int64_t done_bytes, int64_t total_bytes)> load_progress_bar();

// Checks that a text is UTF-8, because templates work on characters. `what` names the text for the
// user, as "the message". Error: kInvalidArgument, naming it, the byte and the remedy.
Status check_utf8(std::string_view what, std::string_view text);

}  // namespace heddle::tools
