// SPDX-License-Identifier: Apache-2.0
#include "load_progress.h"

#include <chrono>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "terminal.h"

namespace heddle::tools {
namespace {

constexpr double kPatienceSeconds = 1.0;
constexpr int64_t kMebibyte = 1 << 20;

class LoadProgress {
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

std::function<void(int64_t, int64_t)> load_progress_bar() {
  return [progress = std::make_shared<LoadProgress>()](int64_t done_bytes, int64_t total_bytes) {
    progress->report(done_bytes, total_bytes);
  };
}

}  // namespace heddle::tools
