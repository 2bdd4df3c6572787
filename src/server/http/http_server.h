// SPDX-License-Identifier: Apache-2.0
// HttpServer: the socket side. Accepts connections, parses requests within limits, hands each to an
// HttpHandler as an Exchange and writes the answers. Knows no API.
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
  // An address or a name; "::" for every IPv6 and IPv4 address; "unix:PATH" for a unix socket,
  // which has no port.
  std::string host = "127.0.0.1";
  uint16_t port = 30000;  // 0: any free port
  // Permissions of a unix socket; none: 0660 if it has a group, else the umask decides.
  std::optional<uint32_t> socket_mode;
  std::string socket_group;      // group that owns a unix socket; empty: the process's group
  std::string certificate_file;  // with `key_file`: clients speak TLS; empty: plain HTTP
  std::string key_file;
  int64_t max_request_bytes = int64_t{64} << 20;     // of a body; more is answered 413
  int64_t max_held_body_bytes = int64_t{256} << 20;  // of all bodies together that are not parsed
                                                     // yet; beyond: 503
  int32_t max_header_bytes = 64 << 10;
  double header_timeout_seconds = 60;
  double body_timeout_seconds = 60;
  double write_timeout_seconds = 60;     // a client that takes no byte for so long is cut
  double idle_timeout_seconds = 300;     // a kept-alive connection without a request
  double first_request_seconds = 1;      // of a client that connected while the server stops
  double linger_seconds = 2;             // for a client to read the last answer before it is cut
  double stop_linger_seconds = 0.25;     // for a request that crosses with the server's close
  double stream_commit_seconds = 30;     // the latest moment for a stream's status line
  double stream_keepalive_seconds = 15;  // silence before a ": ping" comment; 0: never
  int64_t max_outbox_bytes = 1 << 20;    // unsent bytes of one answer; beyond, its maker is to wait
  int32_t max_connections = 16384;
};

// A handler's decision about a request whose head has arrived.
struct Admission {
  std::optional<HttpResponse> refusal;  // the answer, if the request is refused

  // Of its body, within the options' limit; more is answered 413. 0: the route reads no body, and
  // one that comes is dropped.
  int64_t max_body_bytes = 0;
};

// Answers a server's requests. Every call comes on the I/O thread.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Sees the request before its body is read: sets its id and the headers of every answer to it.
  virtual Admission on_head(HttpRequest& request, HttpHeaders& common_headers) = 0;

  // Answers now or later.
  virtual void on_request(std::shared_ptr<Exchange> exchange) = 0;

  // The answer to a request that is not read to its end: malformed bytes, 408, 413, 431, 501 for a
  // coding that is not read, and 503 where a connection or a body is one too many.
  // `request` is null where not even the head has arrived.
  virtual HttpResponse on_transport_error(const HttpRequest* request, int status,
                                          std::string_view message) = 0;

  // After each answer, and when a client leaves within its request's body: for the access log. Null
  // for `request`: not even its head has arrived. Not for requests that the server's end cuts off.
  virtual void on_answered(const HttpRequest* request, const Answered& answered) = 0;
};

// How many of `wanted` connections fit when at most `max_files` files may be open and each takes
// `files_each`. Logs both when they are fewer. Error: kResourceExhausted when none fits.
Result<int32_t> connections_within(int32_t wanted, uint64_t max_files, uint64_t files_each = 1);

inline constexpr std::string_view kUnixPrefix = "unix:";

class HttpServer {
 public:
  // Binds. Raises the soft limit of open files (RLIMIT_NOFILE) as far as `max_connections` needs
  // it; where the hard limit is lower, the server takes fewer connections (connections_within()).
  // Error: kUnavailable, naming address and port, or the path, when it is taken; as TlsTerminator.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpServerOptions& options);

  // Starts the I/O thread. Once; `handler` outlives the server.
  virtual void start(HttpHandler& handler) = 0;

  // Stops at once.
  virtual ~HttpServer() = default;

  [[nodiscard]] virtual uint16_t port() const = 0;

  // Runs `work` on the I/O thread.
  virtual void post(std::function<void()> work) = 0;

  // The same some seconds later, unless the server has stopped by then. On the I/O thread.
  virtual void post_after(double seconds, std::function<void()> work) = 0;

  // Takes no new connections and gives every client that has connected `grace_seconds` to be
  // answered: requests under way, those that have arrived unread, the first one of a new
  // connection. Then closes everything and joins the I/O thread.
  virtual void stop(double grace_seconds) = 0;

  // Begins that and returns at once; stop() waits for the end. Thread-safe.
  virtual void begin_stop(double grace_seconds) = 0;
};

}  // namespace heddle::server
