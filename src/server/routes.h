// SPDX-License-Identifier: Apache-2.0
// The server's paths, and the answers to browsers' questions about them (CORS).
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "server/http_message.h"

namespace heddle::server {

enum class Endpoint {
  kHealth,
  kHealthGenerate,
  kLive,
  kReady,
  kModelInfo,
  kServerInfo,
  kModels,
  kOneModel,
  kChat,
  kCompletions,
  kGenerate,
  kTokenize,
  kDetokenize,
  kMetrics,
  kFlushCache,
  kPause,
  kContinue,
  kAbort,
};

// Bytes of a request's body that are read and kept.
inline constexpr int64_t kNoBody = 0;  // the route reads none
// Read on the I/O thread, where parsing this much is quick.
inline constexpr int64_t kSmallBody = 64 << 10;
// As the server's options say.
inline constexpr int64_t kAnyBody = std::numeric_limits<int64_t>::max();

struct Route {
  std::string_view path;
  Endpoint endpoint;
  std::string_view allow;    // methods, as the Allow header says them
  bool open = false;         // no API key asked
  bool needs_model = false;  // 503 while loading and draining
  int64_t max_body_bytes = kNoBody;
  bool control = false;  // steers the engine for everybody: web pages of other origins may not
};

// Precedes the model's name, which may have slashes of its own.
inline constexpr std::string_view kModelPrefix = "/v1/models/";

// Null for an unknown path.
[[nodiscard]] const Route* find_route(std::string_view path);

[[nodiscard]] bool allows(const Route& route, std::string_view method);

// Any origin may ask, with credentials: the origin is named, as `*` would exclude those.
void add_cors_headers(const HttpRequest& request, HttpHeaders& headers);

// The answer to OPTIONS. `route` may be null.
[[nodiscard]] HttpResponse answer_preflight(const HttpRequest& request, const Route* route);

}  // namespace heddle::server
