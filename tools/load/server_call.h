// SPDX-License-Identifier: Apache-2.0
// ServerCall: sends requests to a server one after the other and waits for each answer. Another
// thread may cancel the wait at any time.
//
// Threading: post() is called by one thread at a time; cancel() by any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <heddle/status.h>

#include "core/mutex.h"
#include "tools/load/server_address.h"

namespace heddle::tools {

class TlsContext;  // defined in server_stream.h

// Loads the certificates against which all connections to a server are checked. Null without TLS.
// Cost: some ten milliseconds if there are certificates to load.
std::shared_ptr<TlsContext> make_tls_context(const ServerAddress& address);

struct ServerReply {
  int status = 0;
  bool is_stream = false;  // the answer was a stream of events
  std::string body;        // body of an answer that is no stream, at most 16 MiB
  bool was_cancelled = false;
};

class ServerCall {
 public:
  using TakeEvent = std::function<void(std::string_view data)>;

  // `api_key` is sent as a bearer token; empty: none. `tls` belongs to `address`.
  ServerCall(ServerAddress address, std::string api_key, std::string user_agent,
             std::shared_ptr<TlsContext> tls)
      : address_(std::move(address)),
        api_key_(std::move(api_key)),
        user_agent_(std::move(user_agent)),
        tls_(std::move(tls)) {}

  ServerCall(const ServerAddress& address, std::string api_key, std::string user_agent)
      : ServerCall(address, std::move(api_key), std::move(user_agent), make_tls_context(address)) {}

  // Sends `body`, which is JSON, to `path`. Each event of a streamed answer is passed to `take`.
  // Error: kUnavailable, if the server cannot be reached or closes the connection early.
  Result<ServerReply> post(std::string_view path, std::string body, const TakeEvent& take)
      HEDDLE_EXCLUDES(mutex_);

  // Cancels the current call, even while it connects; returns false if there is none.
  bool cancel() HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] const ServerAddress& address() const { return address_; }

 private:
  // Sets the socket of the current call, -1 for none. Returns false, and does not set it, if the
  // call is cancelled.
  bool set_running(int socket) HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] bool was_cancelled() HEDDLE_EXCLUDES(mutex_);

  const ServerAddress address_;
  const std::string api_key_;
  const std::string user_agent_;
  const std::shared_ptr<TlsContext> tls_;
  Mutex mutex_;
  int socket_ HEDDLE_GUARDED_BY(mutex_) = -1;
  bool runs_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool cancelled_ HEDDLE_GUARDED_BY(mutex_) = false;
};

}  // namespace heddle::tools
