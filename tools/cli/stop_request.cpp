// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/stop_request.h"

#include <cstdlib>

#include "core/log.h"
#include "tools/cli/terminal.h"

namespace heddle::tools {

StopRequest::StopRequest(server::Server& server) : server_(server) {
  interrupts().set_handler([this](int signal, int count) { on_signal(signal, count); });
  if (!server.reads_keys_again()) return;
  interrupts().set_hangup_handler([this] {
    const Status status = server_.reload_keys();
    if (!status.ok()) log_error("the API keys stay as they are: " + status.message());
  });
}

StopRequest::~StopRequest() {
  interrupts().set_hangup_handler(nullptr);
  interrupts().set_handler(nullptr);  // without a handler a signal ends the process at once
  join_leaving();
}

void StopRequest::loaded() {
  {
    const MutexLock lock(mutex_);
    loaded_ = true;
  }
  join_leaving();
}

void StopRequest::join_leaving() {
  std::thread leaving;
  {
    const MutexLock lock(mutex_);
    leaving.swap(leaving_);
  }
  if (leaving.joinable()) leaving.join();
}

int StopRequest::wait() {
  const MutexLock lock(mutex_);
  changed_.wait(mutex_, [this]() HEDDLE_REQUIRES(mutex_) { return stop_ != 0 || engine_failed_; });
  return stop_;
}

void StopRequest::engine_failed() {
  const MutexLock lock(mutex_);
  engine_failed_ = true;
  changed_.notify_all();
}

void StopRequest::on_signal(int signal, int count) {
  if (count > 1) std::_Exit(128 + signal);
  const MutexLock lock(mutex_);
  if (loaded_) {
    stop_ = signal;
    changed_.notify_all();
    return;
  }
  leaving_ = std::thread([this] {
    server_.shutdown();
    log_info("Stopped while the model was loading");
    std::_Exit(0);
  });
}

}  // namespace heddle::tools
