// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace heddle::tools {
namespace {

constexpr int64_t kBarWidth = 30;
constexpr auto kRedrawPause = std::chrono::milliseconds(50);

sigset_t watched_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) != 0; }

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) != 0; }

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) != 0; }

bool print_now(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

void ProgressBar::show(int64_t done, std::string_view note) {
  if (!visible_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && done < total_ && now - last_drawn_ < kRedrawPause) return;
  last_drawn_ = now;
  drawn_ = true;
  const int64_t filled = total_ > 0 ? std::min(kBarWidth, kBarWidth * done / total_) : kBarWidth;
  fmt::print(stderr, "\r[{}{}] {}/{} {}\x1b[K", std::string(static_cast<size_t>(filled), '#'),
             std::string(static_cast<size_t>(kBarWidth - filled), ' '), done, total_, note);
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

Interrupts::Interrupts() {
  const sigset_t signals = watched_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);         // threads to come inherit this
  signal(SIGPIPE, SIG_IGN);                              // write() reports a reader that went away
  std::thread([this] { wait_for_signals(); }).detach();  // for as long as the process lives
}

void Interrupts::set_handler(Handler handler) {
  const MutexLock lock(mutex_);
  handler_ = std::move(handler);
  count_ = 0;
}

void Interrupts::wait_for_signals() {
  const sigset_t signals = watched_signals();
  while (true) {
    int number = 0;
    if (sigwait(&signals, &number) != 0) continue;
    const MutexLock lock(mutex_);
    if (!handler_) std::_Exit(128 + number);
    handler_(number, ++count_);
  }
}

Interrupts& interrupts() {
  static auto* const instance = new Interrupts();  // never destroyed: its thread outlives main()
  return *instance;
}

}  // namespace heddle::tools
