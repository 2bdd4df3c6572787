// SPDX-License-Identifier: Apache-2.0
// HttpServer: accepts connections, parses requests within limits, passes each to an HttpHandler as
// an Exchange and writes the answers. It knows no API.
//
// Threading: one I/O thread runs every connection and every call of the handler; nothing on it may
//            block. post(), begin_stop(), stop() and port() are thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <heddle/status.h>

#include "server/http/exchange.h"
#include "server/http/http_message.h"

namespace heddle::server {

struct HttpServerOptions {
  // Address or name to listen on: "::" for every IPv6 and IPv4 address; "unix:PATH" for a unix
  // socket, which has no port.
  std::string host = "127.0.0.1";
  uint16_t port = 30000;  // port to listen on; 0: any free port
  // Permissions of a unix socket; none: 0660 if it has a group, else the umask decides.
  std::optional<uint32_t> socket_mode;
  std::string socket_group;      // group that owns the unix socket; empty: the process's group
  std::string certificate_file;  // PEM; with `key_file`, clients speak TLS; empty: plain HTTP
  std::string key_file;
  int64_t max_request_bytes = int64_t{64} << 20;  // limit for one body; more is answered 413
  // Limit for all bodies that are not parsed yet; more is answered 503.
  int64_t max_held_body_bytes = int64_t{256} << 20;
  int32_t max_header_bytes = 64 << 10;
  double header_timeout_seconds = 60;
  double body_timeout_seconds = 60;
  double write_timeout_seconds = 60;  // a client that receives no byte for so long is disconnected
  double idle_timeout_seconds = 300;  // time limit of a kept-alive connection without a request
  // Time for a new connection's first request while the server stops.
  double first_request_seconds = 1;
  // Time for a client to read a last answer before the connection closes.
  double linger_seconds = 2;
  // The same while the server stops, for a request that crosses with the close.
  double stop_linger_seconds = 0.25;
  // At the latest, a stream's status line is sent after this time.
  double stream_commit_seconds = 30;
  // Time without bytes after which a stream sends the comment ": ping"; 0: never.
  double stream_keepalive_seconds = 15;
  // Unsent bytes of one answer above which Exchange::backed_up() is true.
  int64_t max_outbox_bytes = 1 << 20;
  int32_t max_connections = 16384;
};

// A handler's decision about a request of which only the head has arrived.
struct Admission {
  // The answer if the request is refused; none: it is accepted.
  std::optional<HttpResponse> refusal;

  // Limit for the body, within the options' limit; more is answered 413. 0: the route needs no
  // body, and a body that arrives is dropped.
  int64_t max_body_bytes = 0;
};

// Answers a server's requests. All functions are called on the I/O thread.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Called with a request before its body is read: sets its id and the headers of every answer to
  // it.
  virtual Admission on_head(HttpRequest& request, HttpHeaders& common_headers) = 0;

  // Answers a request, now or later.
  virtual void on_request(std::shared_ptr<Exchange> exchange) = 0;

  // Makes the answer to a request that is not read to its end: malformed bytes, 408, 413, 431, 501
  // for an unsupported transfer coding, 503 for a connection or a body beyond the limits. `request`
  // is null if not even the head has arrived.
  virtual HttpResponse on_transport_error(const HttpRequest* request, int status,
                                          std::string_view message) = 0;

  // Called after each answer, and when a client disconnects while it sends a body: for the access
  // log. `request` is null if not even the head had arrived. Not called for requests that the end
  // of the server cuts off.
  virtual void on_answered(const HttpRequest* request, const Answered& answered) = 0;
};

// How many of `wanted` connections fit if the process may open `max_files` files and each
// connection needs `files_each`. Logs both numbers if fewer fit. Error: kResourceExhausted if none
// fits.
Result<int32_t> connections_within(int32_t wanted, uint64_t max_files, uint64_t files_each = 1);

inline constexpr std::string_view kUnixPrefix = "unix:";

class HttpServer {
 public:
  // Binds the address. Raises the soft limit of open files (RLIMIT_NOFILE) as far as
  // `max_connections` needs; if the hard limit is lower, the server accepts fewer connections
  // (connections_within()). Error: kUnavailable, naming address and port, or the path, if it is in
  // use; those of TlsTerminator.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpServerOptions& options);

  // Starts the I/O thread. Called once; `handler` outlives the server.
  virtual void start(HttpHandler& handler) = 0;

  // Stops the server at once.
  virtual ~HttpServer() = default;

  [[nodiscard]] virtual uint16_t port() const = 0;

  // Runs `work` on the I/O thread.
  virtual void post(std::function<void()> work) = 0;

  // Runs `work` on the I/O thread some seconds later, unless the server has stopped by then. Called
  // on the I/O thread.
  virtual void post_after(double seconds, std::function<void()> work) = 0;

  // Accepts no new connections. Requests that run, requests that have arrived unread, and the first
  // request of a new connection have `grace_seconds` to be answered. Then closes everything and
  // joins the I/O thread.
  virtual void stop(double grace_seconds) = 0;

  // Begins what stop() does and returns at once; stop() then waits for the end. Thread-safe.
  virtual void begin_stop(double grace_seconds) = 0;
};

}  // namespace heddle::server
