// SPDX-License-Identifier: Apache-2.0
// The server's paths, and the answers to browsers' questions about them (CORS).
//
// Threading: free functions without state.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

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
  kRoot,
  kResponses,
  kOneResponse,
  kMessages,
  kCountTokens,
  kOllamaChat,
  kOllamaGenerate,
  kOllamaModels,
  kOllamaRunning,
  kOllamaShow,
  kOllamaVersion,
  kVersion,
  kInvocations,
  kVertex,
  kLoad,
  kLoads,
  kWeightVersion,
  kUpdateWeightVersion,
  kUpdateWeights,
  kParseFunctionCall,
  kSeparateReasoning,
  kFiles,
  kOneFile,
  kBatches,
  kOneBatch,
  kStartProfile,
  kStopProfile,
  kConfigureLogging,
  kSetInternalState,
  kSlowDown,
  kOpenApi,
  kDocs,
  kOpenSession,
  kCloseSession,
  kInspect,
  kDashboard,
  kNotServed,
};

// Bytes of a request's body that are read and kept.
inline constexpr int64_t kNoBody = 0;  // the route reads none
// Read on the I/O thread, where parsing this much is quick.
inline constexpr int64_t kSmallBody = 64 << 10;
// As the server's options say.
inline constexpr int64_t kAnyBody = std::numeric_limits<int64_t>::max();

// The key that a route asks for, where the server has one.
enum class Access : uint8_t {
  kOpen,   // none
  kUser,   // any
  kAdmin,  // the admin key; where there is none, any
};

struct Route {
  std::string_view path;
  Endpoint endpoint;
  std::string_view allow;  // methods, as the Allow header says them
  Access access = Access::kUser;
  bool needs_model = false;  // 503 while loading and draining
  int64_t max_body_bytes = kNoBody;
  // Steers the engine for everybody, or shows what others sent: web pages of other origins may not.
  bool control = false;
};

// Precedes the model's name, which may have slashes of its own.
inline constexpr std::string_view kModelPrefix = "/v1/models/";

// Precedes the id of a response, and "/cancel" or "/input_items" may follow that.
inline constexpr std::string_view kResponsePrefix = "/v1/responses/";

// Precede the ids of a file, which "/content" may follow, and of a batch, which "/cancel" may.
inline constexpr std::string_view kFilePrefix = "/v1/files/";
inline constexpr std::string_view kBatchPrefix = "/v1/batches/";

struct RouteSummary {
  std::string path;  // with {names} for what varies
  const Route* route = nullptr;
};

// Every route that is served.
[[nodiscard]] std::vector<RouteSummary> route_summaries();

// Null for an unknown path.
[[nodiscard]] const Route* find_route(std::string_view path);

// The path of a route that was perhaps meant by one that is unknown: it lacks the beginning
// ("/chat/completions"), has one too many ("/v1/v1/models"), a slash at its end, or up to two wrong
// letters. "" without one. Cost: bounded, whatever the path's length.
[[nodiscard]] std::string_view similar_route(std::string_view path);

[[nodiscard]] bool allows(const Route& route, std::string_view method);

// Cross-origin rules (CORS): the web pages whose scripts may send requests.
struct CorsOptions {
  std::vector<std::string> origins = {"*"};  // "*": any; empty: none
  std::vector<std::string> headers = {"*"};  // of requests; "*": any
};

// For a page that may ask, with credentials: its origin is named, as `*` would exclude those.
void add_cors_headers(const CorsOptions& cors, const HttpRequest& request, HttpHeaders& headers);

// The answer to OPTIONS. `route` may be null.
[[nodiscard]] HttpResponse answer_preflight(const CorsOptions& cors, const HttpRequest& request,
                                            const Route* route);

}  // namespace heddle::server
