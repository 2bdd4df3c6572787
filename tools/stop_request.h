// SPDX-License-Identifier: Apache-2.0
// StopRequest: what SIGINT and SIGTERM mean to a server. The first asks for a calm end, the second
// for one at once, whether the model is loading, serves, or is being shut down.
//
// Threading: loaded() and wait() belong to the thread that made it. Signals are taken on the thread
// of Interrupts, which is never kept waiting: the second one is heard while the first is obeyed.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/server.h"

namespace heddle::tools {

class StopRequest {
 public:
  // Loading cannot be interrupted half-way, but there is nothing to lose either: until loaded() is
  // called, the first signal ends the process as soon as everybody who asked has an answer.
  explicit StopRequest(server::Server& server);

  // After a signal that came while loading this does not return: the process ends first.
  ~StopRequest();

  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Does not return after a signal, either.
  void loaded();

  // Until the first signal.
  void wait();

 private:
  void on_signal(int signal, int count);

  server::Server& server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool loaded_ = false;  // guarded by mutex_
  bool stop_ = false;    // guarded by mutex_

  // Ends the process; joining it is waiting for that. Guarded by mutex_ until loaded() or the
  // destructor, after which no signal starts it.
  std::thread leaving_;
};

}  // namespace heddle::tools
