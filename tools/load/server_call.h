// SPDX-License-Identifier: Apache-2.0
// ServerCall: one request after the other to a server, each waited for, which another thread may
// end at any time.
//
// Threading: post() by one thread at a time; cancel() from any.
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

class TlsContext;  // server_stream.h

// Loads the certificates that all connections to a server are checked by. Null without TLS.
// Cost: some ten milliseconds where there is something to check.
std::shared_ptr<TlsContext> make_tls_context(const ServerAddress& address);

struct ServerReply {
  int status = 0;
  bool is_stream = false;  // events were received
  std::string body;        // body of another answer, at most 16 MiB
  bool was_cancelled = false;
};

class ServerCall {
 public:
  using TakeEvent = std::function<void(std::string_view data)>;

  // `api_key` is sent as a bearer token; empty: none. `tls` is that of `address`.
  ServerCall(ServerAddress address, std::string api_key, std::string user_agent,
             std::shared_ptr<TlsContext> tls)
      : address_(std::move(address)),
        api_key_(std::move(api_key)),
        user_agent_(std::move(user_agent)),
        tls_(std::move(tls)) {}

  ServerCall(const ServerAddress& address, std::string api_key, std::string user_agent)
      : ServerCall(address, std::move(api_key), std::move(user_agent), make_tls_context(address)) {}

  // Sends `body`, which is JSON, to `path`. Of a stream each event goes to `take`.
  // Error: kUnavailable, when the server cannot be reached or breaks off.
  Result<ServerReply> post(std::string_view path, std::string body, const TakeEvent& take)
      HEDDLE_EXCLUDES(mutex_);

  // Ends the call that is under way, also one that still connects; false where none is.
  bool cancel() HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] const ServerAddress& address() const { return address_; }

 private:
  // The socket of the call under way, -1 for none, which a cancelled call does not get.
  // False for a call that is cancelled.
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
