// SPDX-License-Identifier: Apache-2.0
// Deadline: a timer of one connection, restarted for each event that the connection waits for. Its
// function is never called after stop(), after a later start() or after this object is destroyed,
// even if Asio had already queued the call.
//
// Threading: confined to the I/O thread. Private to the files that see Asio (src/server/README.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>

namespace heddle::server {

using IoClock = std::chrono::steady_clock;

inline IoClock::duration seconds(double value) {
  return std::chrono::duration_cast<IoClock::duration>(std::chrono::duration<double>(value));
}

inline double seconds_since(IoClock::time_point start) {
  return std::chrono::duration<double>(IoClock::now() - start).count();
}

class Deadline {
 public:
  explicit Deadline(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  ~Deadline() { stop(); }

  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  // Calls `on_time` once, after `limit`.
  void start(IoClock::duration limit, std::function<void()> on_time) {
    stop();
    timer_.expires_after(limit);
    timer_.async_wait([current = number_, number = *number_,
                       call = std::move(on_time)](const boost::system::error_code& error) {
      if (!error && *current == number) call();
    });
  }

  void stop() {
    ++*number_;
    timer_.cancel();
  }

 private:
  boost::asio::steady_timer timer_;
  // Number of the latest start() or stop(); a timer of an older one sees that it has changed.
  std::shared_ptr<int64_t> number_ = std::make_shared<int64_t>(0);
};

}  // namespace heddle::server
