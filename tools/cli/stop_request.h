// SPDX-License-Identifier: Apache-2.0
// StopRequest: turns SIGINT and SIGTERM into the end of a server. The first signal shuts the server
// down in order, the second ends the process at once, whether the model is loading, serving, or
// being shut down.
//
// SIGHUP, where the server has a file of API keys, reads that again.
//
// Threading: loaded() and wait() belong to the thread that made it. Signals arrive on the thread of
// Interrupts, which never waits here: it takes the second signal while the first takes effect.
#pragma once

#include <thread>

#include "core/mutex.h"
#include "server/server.h"

namespace heddle::tools {

class StopRequest {
 public:
  // Loading cannot be interrupted, but nothing is lost by ending it either: until loaded() is
  // called, the first signal ends the process as soon as every open request has an answer.
  explicit StopRequest(server::Server& server);

  // Does not return after a signal that came while loading: the process ends first.
  ~StopRequest();

  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Does not return after a signal, either.
  void loaded();

  // Ends the wait, as a signal does. Thread-safe.
  void engine_failed() HEDDLE_EXCLUDES(mutex_);

  // Returns the first signal when it comes, or 0 when the engine failed.
  int wait();

 private:
  void on_signal(int signal, int count) HEDDLE_EXCLUDES(mutex_);
  void join_leaving() HEDDLE_EXCLUDES(mutex_);

  server::Server& server_;
  Mutex mutex_;
  CondVar changed_;
  bool loaded_ HEDDLE_GUARDED_BY(mutex_) = false;
  int stop_ HEDDLE_GUARDED_BY(mutex_) = 0;  // the signal that asked for it
  bool engine_failed_ HEDDLE_GUARDED_BY(mutex_) = false;

  // Ends the process: joining it means to wait for the end.
  std::thread leaving_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::tools
