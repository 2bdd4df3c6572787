// SPDX-License-Identifier: Apache-2.0
// EchoHandler: for fuzz targets, answers with the request that it received, in every way that an
// Exchange allows, and checks the server's calls.
//
// Threading: confined to the I/O thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/check.h"
#include "server/http/body_sender.h"
#include "server/http/http_server.h"
#include "server/http/request_gate.h"
#include "server/http/response_writer.h"

namespace heddle::server::testing {

// A body that repeats the echo, in pieces longer than those sent without a turn of the loop.
class EchoSource final : public BodySource {
 public:
  explicit EchoSource(std::string echo) : echo_(std::move(echo)) {}

  [[nodiscard]] bool next(std::string& piece) override {
    piece = echo_ + std::string(kMaxShortPieceBytes, '.');
    return --num_left_ > 0;
  }

 private:
  const std::string echo_;
  int num_left_ = 4;
};

// Answers requests. A path of the API passes the server's own gate and is answered at once, and so
// is any unknown path. These paths are answered in other ways:
//
//   /later    the echo, a few turns of the loop later
//   /events   a stream of events             /lines    one of lines
//   /broken   one that breaks off            /pieces   a body that is made while it is sent
//   /nothing  204                            /refused  403, decided from the head
//   /dropped  the echo, with the request's body dropped
class EchoHandler final : public HttpHandler {
 public:
  struct Entry {
    // Method of the request; none: not even its head has arrived.
    std::optional<std::string> method;
    Answered answered;
  };

  // `post` runs a function in a later turn of the loop. `gate` and `options` outlive the handler.
  EchoHandler(std::function<void(std::function<void()>)> post, RequestGate& gate,
              const HttpServerOptions& options)
      : post_(std::move(post)), gate_(gate), options_(options) {}

  Admission on_head(HttpRequest& request, HttpHeaders& common_headers) override {
    ++num_heads;
    size_t num_bytes = request.method.size();
    for (const auto& [name, value] : request.headers) num_bytes += name.size() + value.size() + 3;
    HEDDLE_CHECK_LE(num_bytes, static_cast<size_t>(options_.max_header_bytes));

    echo_ = fmt::format("{} {} {}\n", request.method, request.path, request.query);
    for (const auto& [name, value] : request.headers) {
      echo_.append(name).append(": ").append(value).append("\n");
    }
    // A random id would make two runs differ.
    request.headers.insert(request.headers.begin(), {"x-request-id", "1"});
    gate_.identify(request, common_headers);
    admission_ = admission_for(request);
    return admission_;
  }

  void on_request(std::shared_ptr<Exchange> exchange) override {
    ++num_requests;
    HEDDLE_CHECK(!admission_.refusal);
    const HttpRequest& request = exchange->request();
    check_body(request);
    std::string echo = std::exchange(echo_, {}) + request.body;
    const std::string& path = request.path;
    if (path == "/events") {
      stream(std::move(exchange), StreamFormat::kEvents, std::move(echo), /*broken=*/false);
    } else if (path == "/lines") {
      stream(std::move(exchange), StreamFormat::kLines, std::move(echo), /*broken=*/false);
    } else if (path == "/broken") {
      stream(std::move(exchange), StreamFormat::kEvents, std::move(echo), /*broken=*/true);
    } else if (path == "/pieces") {
      exchange->open_body({.headers = {}, .body = {}});
      send_body(threads(), std::move(exchange), std::make_unique<EchoSource>(std::move(echo)));
    } else if (path == "/later") {
      post_([this, exchange, echo = std::move(echo)] {
        post_([exchange, echo] { exchange->respond({.headers = {}, .body = echo}); });
      });
    } else if (path == "/nothing") {
      exchange->respond({.status = 204, .headers = {}, .body = {}});
    } else {
      exchange->respond({.headers = {}, .body = std::move(echo)});
    }
  }

  HttpResponse on_transport_error(const HttpRequest*, int status,
                                  std::string_view message) override {
    return {.status = status, .headers = {}, .body = std::string(message)};
  }

  void on_answered(const HttpRequest* request, const Answered& answered) override {
    entries.push_back({.method = request != nullptr ? std::optional(request->method) : std::nullopt,
                       .answered = answered});
  }

  std::vector<Entry> entries;
  size_t num_heads = 0;
  size_t num_requests = 0;

 private:
  Admission admission_for(HttpRequest& request) {
    if (request.path == "/refused") {
      return {.refusal = on_transport_error(&request, 403, "no"), .max_body_bytes = kAnyBody};
    }
    if (request.path == "/dropped") return {.refusal = std::nullopt, .max_body_bytes = kNoBody};
    const Route* const route = find_route(request.path);
    if (route == nullptr) return {.refusal = std::nullopt, .max_body_bytes = kAnyBody};
    return {.refusal = gate_.refusal_of(request, route, std::nullopt),
            .max_body_bytes = route->max_body_bytes};
  }

  // Checks that the body's length is given in only one way: with two, the next reader could choose
  // the other.
  void check_body(const HttpRequest& request) const {
    const int64_t limit = std::min(admission_.max_body_bytes, options_.max_request_bytes);
    HEDDLE_CHECK_LE(static_cast<int64_t>(request.body.size()), limit);
    const std::string_view length = request.header("content-length");
    const std::string_view coding = request.header("transfer-encoding");
    HEDDLE_CHECK(length.empty() || coding.empty());
    HEDDLE_CHECK(coding.empty() || lower_case(coding) == "chunked");
    if (coding.empty() && limit > 0) {
      HEDDLE_CHECK_EQ(request.body.size(), std::strtoull(std::string(length).c_str(), nullptr, 10));
    }
  }

  // Sends a stream. Its parts are written in different turns of the loop, some of them sent
  // directly.
  void stream(std::shared_ptr<Exchange> exchange, StreamFormat format, std::string text,
              bool broken) {
    exchange->writes_all_there_is = true;
    exchange->open_stream(format);
    post_([this, exchange, text = std::move(text), broken] {
      exchange->write(text);
      post_([this, exchange, text, broken] {
        exchange->write(text);
        post_([exchange, broken] { broken ? exchange->break_off() : exchange->finish(); });
      });
    });
  }

  // BodyThreads whose run_on_worker() runs the work on the I/O thread, in a later turn of its loop.
  [[nodiscard]] BodyThreads threads() const {
    return {.run_on_worker =
                [post = post_](std::function<void()> work) {
                  post(std::move(work));
                  return true;
                },
            .post = post_};
  }

  const std::function<void(std::function<void()>)> post_;
  RequestGate& gate_;
  const HttpServerOptions& options_;
  Admission admission_;  // admission for the latest head, echoed with its request
  std::string echo_;
};

}  // namespace heddle::server::testing
