// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/terminal.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "tokenizer/utf8.h"

namespace heddle::tools {
namespace {

constexpr int64_t kBarWidth = 30;
constexpr auto kRedrawPause = std::chrono::milliseconds(50);

sigset_t watched_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  return signals;
}

constexpr double kPatienceSeconds = 1.0;
constexpr int64_t kMebibyte = 1 << 20;

class LoadingBar {
 public:
  void report(int64_t done_bytes, int64_t total_bytes) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    if (elapsed.count() < kPatienceSeconds && !bar_) return;
    if (!bar_) bar_.emplace(total_bytes / kMebibyte);
    const double gigabytes = static_cast<double>(done_bytes) / 1e9;
    bar_->show(done_bytes / kMebibyte,
               fmt::format("MiB of weights, {:.1f} GB/s", gigabytes / elapsed.count()));
    if (done_bytes >= total_bytes) bar_.reset();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<ProgressBar> bar_;
};

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
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // threads created later inherit this mask
  // Instead, write() returns an error when the reader has closed the pipe.
  signal(SIGPIPE, SIG_IGN);
  std::thread([this] { wait_for_signals(); }).detach();  // this thread runs until the process ends
}

void Interrupts::set_handler(Handler handler) {
  const MutexLock lock(mutex_);
  handler_ = std::move(handler);
  count_ = 0;
}

void Interrupts::set_hangup_handler(std::function<void()> handler) {
  const MutexLock lock(mutex_);
  on_hangup_ = std::move(handler);
}

void Interrupts::wait_for_signals() {
  const sigset_t signals = watched_signals();
  struct sigaction hangup = {};
  const bool ignores_hangup =
      sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
  while (true) {
    int number = 0;
    if (sigwait(&signals, &number) != 0) continue;
    const MutexLock lock(mutex_);
    if (number == SIGHUP && on_hangup_) {
      on_hangup_();
      continue;
    }
    if (number == SIGHUP && ignores_hangup) continue;
    if (!handler_ || number == SIGHUP) std::_Exit(128 + number);
    handler_(number, ++count_);
  }
}

Interrupts& interrupts() {
  // Never destroyed, because its thread outlives main().
  static auto* const instance = new Interrupts();
  return *instance;
}

std::function<void(int64_t, int64_t)> load_progress_bar() {
  return [progress = std::make_shared<LoadingBar>()](int64_t done_bytes, int64_t total_bytes) {
    progress->report(done_bytes, total_bytes);
  };
}

Status check_utf8(std::string_view what, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const tokenizer::Utf8Unit unit = tokenizer::decode_utf8(text.substr(at));
    if (unit.kind != tokenizer::Utf8Unit::Kind::kCodePoint) {
      return invalid_argument(fmt::format(
          "{} is not UTF-8: its byte {} is 0x{:02x}; convert it, for example with iconv", what,
          at + 1, static_cast<unsigned char>(text[at])));
    }
    at += unit.length;
  }
  return ok_status();
}

}  // namespace heddle::tools
