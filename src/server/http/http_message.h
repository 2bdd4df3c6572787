// SPDX-License-Identifier: Apache-2.0
// A parsed HTTP request and an answer to send, as plain values that do not depend on the network
// library.
//
// Threading: plain values; thread-compatible.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::server {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct ApiKey;  // defined in key_ring.h

// How errors are written for the client of a request (api_error.h).
enum class ErrorStyle : uint8_t { kBoth, kOpenAi, kFlat, kAnthropic, kOllama };

struct ErrorForm {
  ErrorStyle style = ErrorStyle::kBoth;
  int overload_status = 503;  // status for a full queue and for too long a wait in it
};

struct HttpRequest {
  std::string method;   // method, as "GET"
  std::string path;     // path, percent-decoded, without the query
  std::string query;    // query as sent, without the '?'
  HttpHeaders headers;  // headers; their names are in lower case
  std::string body;
  std::string id;      // sent as the answer's x-request-id; the body's `rid` may replace it
  std::string client;  // address of the client, "unix" for a unix socket; for the log
  std::chrono::steady_clock::time_point arrived_at;  // when the head of the request was complete

  // Set by the handler from the head.
  std::shared_ptr<const ApiKey> key;  // named API key of the request; null if it has none
  bool counted = false;               // whether the request counts as running for its key
  ErrorForm error_form;
  // Why the request may not use stored data (PageGuard); "": it may.
  std::string stored_refusal = {};
  std::string speed = {};  // speed of the answer's tokens (CallSpeed), for the log

  // The first value of a header, "" if it is absent. `name` is in lower case.
  [[nodiscard]] std::string_view header(std::string_view name) const;

  // The first value of a query parameter, percent-decoded; none if it is absent.
  [[nodiscard]] std::optional<std::string> query_value(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
};

// Status in logs and metrics, never sent: the client disconnected before its answer was complete.
inline constexpr int kClientLeft = 499;

// The outcome of a request, for logs and metrics.
struct Answered {
  int status = 200;        // status of the answer; kClientLeft: the client disconnected first
  double seconds = 0;      // time from the request's last byte to the end of the answer
  int64_t bytes = 0;       // bytes of the answer that were sent
  bool read_whole = true;  // false: the request was not read to its end; then `seconds` count from
                           // its head, or from when the server began to read it
};

// Path and query of a request's target. Clients of a proxy send it with scheme and host before it
// ("http://host/path", RFC 9112 section 3.2.2).
[[nodiscard]] std::string_view origin_form(std::string_view target);

// Host and port of a target with a scheme: "host"; "" for other targets.
[[nodiscard]] std::string_view authority_of(std::string_view target);

// Decodes "%41" to "A"; a malformed escape is left unchanged.
[[nodiscard]] std::string percent_decode(std::string_view text);

// Converts ASCII letters to lower case, no others.
[[nodiscard]] std::string lower_case(std::string_view text);

}  // namespace heddle::server
