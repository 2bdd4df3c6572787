// SPDX-License-Identifier: Apache-2.0
// StopRequest: shuts a server down at SIGINT and SIGTERM. The first signal shuts it down in order,
// the second ends the process at once, whether the model is loading, serving or shutting down.
//
// SIGHUP reads the file of API keys again, if the server has one.
//
// Threading: loaded() and wait() belong to the thread that created the object. Signals are handled
//            on the thread of Interrupts, which never waits here, so that a second signal is
//            handled while the first takes effect.
#pragma once

#include <thread>

#include "core/mutex.h"
#include "server/server.h"

namespace heddle::tools {

class StopRequest {
 public:
  // Loading cannot be interrupted, but ending it loses nothing: until loaded() is called, the first
  // signal ends the process as soon as every open request has an answer.
  explicit StopRequest(server::Server& server);

  // Does not return if a signal arrived while loading: the process ends first.
  ~StopRequest();

  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Called when the model is loaded. Does not return if a signal has arrived.
  void loaded();

  // Makes wait() return, as a signal does. Thread-safe.
  void engine_failed() HEDDLE_EXCLUDES(mutex_);

  // Waits, and returns the first signal, or 0 if the engine failed.
  int wait();

 private:
  void on_signal(int signal, int count) HEDDLE_EXCLUDES(mutex_);
  void join_leaving() HEDDLE_EXCLUDES(mutex_);

  server::Server& server_;
  Mutex mutex_;
  CondVar changed_;
  bool loaded_ HEDDLE_GUARDED_BY(mutex_) = false;
  int stop_ HEDDLE_GUARDED_BY(mutex_) = 0;  // the signal that requested the shutdown; 0: none
  bool engine_failed_ HEDDLE_GUARDED_BY(mutex_) = false;

  // Ends the process; joining this thread waits for that end.
  std::thread leaving_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::tools
