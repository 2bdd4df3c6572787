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

#include "server/http/http_message.h"

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
  kResponseTokens,
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
  kLoadAdapter,
  kUnloadAdapter,
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

// Values of Route::max_body_bytes: most bytes of a request's body that are read and kept.
inline constexpr int64_t kNoBody = 0;  // limit for routes without a body
// For bodies that are parsed on the I/O thread, where this size is quick.
inline constexpr int64_t kSmallBody = 64 << 10;
// As much as the server's options allow.
inline constexpr int64_t kAnyBody = std::numeric_limits<int64_t>::max();

// The API key that a route requires, if the server has keys.
enum class Access : uint8_t {
  kOpen,   // the route requires no key
  kUser,   // the route requires a key, of any kind
  kAdmin,  // the route requires the admin key, or any key if there is no admin key
};

// The kind of data that a route accesses. On a server without keys, foreign web pages may only call
// routes with kAnswer (PageGuard).
enum class Concern : uint8_t {
  kAnswer,  // only its own answer: generation, health, properties of the model
  kStored,  // reads or changes stored data, or shows the server's configuration
  kServer,  // controls the server for all users, or shows requests of others
};

struct Route {
  std::string_view path;
  Endpoint endpoint;
  std::string_view allow;  // allowed methods, as written in the Allow header
  Access access = Access::kUser;
  bool needs_model = false;  // true: answered 503 while loading and draining
  int64_t max_body_bytes = kNoBody;
  Concern concern = Concern::kAnswer;
};

// Path prefix before a model's name, which may contain slashes.
inline constexpr std::string_view kModelPrefix = "/v1/models/";

// Path prefix before the id of a response; "/cancel" or "/input_items" may follow the id.
inline constexpr std::string_view kResponsePrefix = "/v1/responses/";

// Path prefixes before the id of a file, which "/content" may follow, and of a batch, which
// "/cancel" may follow.
inline constexpr std::string_view kFilePrefix = "/v1/files/";
inline constexpr std::string_view kBatchPrefix = "/v1/batches/";

// Path prefix before the name of a dashboard file; the dashboard page itself is at "/".
inline constexpr std::string_view kDashboardPrefix = "/dashboard/";

struct RouteSummary {
  std::string path;  // path with {names} for its variable parts
  const Route* route = nullptr;
  std::string_view allow;  // those methods of the route that this path has
};

// All routes that are served.
[[nodiscard]] std::vector<RouteSummary> route_summaries();

// The route of a path; null if the path is unknown.
[[nodiscard]] const Route* find_route(std::string_view path);

// Normalises a path to that of a route: without slashes at its end, with "/v1" added
// ("/chat/completions/") or removed ("/v1/generate") if a route exists for the result. Other paths
// are returned unchanged.
[[nodiscard]] std::string known_path(std::string path);

// The path of the route that an unknown path probably meant: the unknown one has an additional
// beginning ("/openai/v1/models"), or wrong letters: at most two, and at most one per four letters
// of its last part. "" if there is none. Cost: bounded, whatever the path's length.
[[nodiscard]] std::string_view similar_route(std::string_view path);

[[nodiscard]] bool allows(const Route& route, std::string_view method);

// Whether both OpenAI's and Anthropic's API have this route, in different forms.
[[nodiscard]] bool is_of_several_apis(const Route& route);

// Cross-origin rules (CORS): the web pages whose scripts may send requests.
struct CorsOptions {
  std::vector<std::string> origins = {"*"};  // as canonical_origin(); "*": any; empty: none
  std::vector<std::string> headers = {"*"};  // of requests; "*": any
};

// Adds the headers for a page that may send requests with credentials. They name its origin,
// because `*` would exclude credentials.
void add_cors_headers(const CorsOptions& cors, const HttpRequest& request, HttpHeaders& headers);

// The answer to OPTIONS. `route` may be null. `may_call`: false if the request itself would be
// refused to the page, whose browser then does not send it.
[[nodiscard]] HttpResponse answer_preflight(const CorsOptions& cors, const HttpRequest& request,
                                            const Route* route, bool may_call);

}  // namespace heddle::server
