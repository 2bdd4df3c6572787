// SPDX-License-Identifier: Apache-2.0
// A parsed HTTP request and an answer to send, as plain values: nothing here knows the network
// library.
//
// Threading: values.
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

struct ApiKey;  // key_ring.h

// How errors are spelled to the client of a request (api_error.h).
enum class ErrorStyle : uint8_t { kBoth, kOpenAi, kFlat, kAnthropic, kOllama };

struct ErrorForm {
  ErrorStyle style = ErrorStyle::kBoth;
  int overload_status = 503;  // for a full queue and for a wait in it that took too long
};

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // percent-decoded, without the query
  std::string query;    // as sent, without the '?'
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string id;      // of the answer's x-request-id; the body's `rid` may replace it
  std::string client;  // the address it came from, "unix" for a unix socket; for the log
  std::chrono::steady_clock::time_point arrived_at;  // when its head had arrived

  // The handler's, from the head.
  std::shared_ptr<const ApiKey> key;  // that was sent; null where keys have no names
  bool counted = false;               // among the key's requests that are under way
  ErrorForm error_form;
  std::string stored_refusal = {};  // why it may use nothing that is stored (PageGuard); "": it may
  std::string speed = {};           // of the tokens it was answered with (CallSpeed), for the log

  // The first value of a header, "" when absent. `name` in lower case.
  [[nodiscard]] std::string_view header(std::string_view name) const;

  // The first value of a query parameter, percent-decoded; none when absent.
  [[nodiscard]] std::optional<std::string> query_value(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
};

// For logs and metrics, never sent: the client went away before its answer was complete.
inline constexpr int kClientLeft = 499;

// How a request ended.
struct Answered {
  int status = 200;        // kClientLeft: it went away first
  double seconds = 0;      // since the request's last byte
  int64_t bytes = 0;       // sent
  bool read_whole = true;  // else `seconds` are since its head, or since reading that began
};

// Path and query of a request's target, which clients of a proxy send with scheme and host in front
// ("http://host/path", RFC 9112 section 3.2.2).
[[nodiscard]] std::string_view origin_form(std::string_view target);

// The host and port of such a target: "host"; "" of another one.
[[nodiscard]] std::string_view authority_of(std::string_view target);

// Turns %41 into A; a malformed escape stays as it is.
[[nodiscard]] std::string percent_decode(std::string_view text);

[[nodiscard]] std::string lower_case(std::string_view text);  // ASCII letters only

}  // namespace heddle::server
