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

// The things that a route acts on. On a server that asks for no key web pages of others may call
// those of kAnswer alone (PageGuard).
enum class Concern : uint8_t {
  kAnswer,  // its own answer: generation, health, facts of the model
  kStored,  // shows or changes what the server keeps, or shows how it is set up
  kServer,  // steers the server for everybody, or shows what others sent
};

struct Route {
  std::string_view path;
  Endpoint endpoint;
  std::string_view allow;  // methods, as the Allow header says them
  Access access = Access::kUser;
  bool needs_model = false;  // 503 while loading and draining
  int64_t max_body_bytes = kNoBody;
  Concern concern = Concern::kAnswer;
};

// Precedes the model's name, which may have slashes of its own.
inline constexpr std::string_view kModelPrefix = "/v1/models/";

// Precedes the id of a response, and "/cancel" or "/input_items" may follow that.
inline constexpr std::string_view kResponsePrefix = "/v1/responses/";

// Precede the ids of a file, which "/content" may follow, and of a batch, which "/cancel" may.
inline constexpr std::string_view kFilePrefix = "/v1/files/";
inline constexpr std::string_view kBatchPrefix = "/v1/batches/";

// Precedes the name of a file of the dashboard; the page itself is at "/".
inline constexpr std::string_view kDashboardPrefix = "/dashboard/";

struct RouteSummary {
  std::string path;  // with {names} for what varies
  const Route* route = nullptr;
  std::string_view allow;  // methods of this path, of those of the route
};

// Every route that is served.
[[nodiscard]] std::vector<RouteSummary> route_summaries();

// Null for an unknown path.
[[nodiscard]] const Route* find_route(std::string_view path);

// The path by which a route is found that was asked for with slashes at its end, without its "/v1"
// ("/chat/completions/") or with one that it does not have ("/v1/generate"). Another path stays as
// it is.
[[nodiscard]] std::string known_path(std::string path);

// The path of a route that was perhaps meant by one that is unknown: it has a beginning too many
// ("/openai/v1/models"), or some wrong letters: one of four in its last part,
// and no more than two. "" without one. Cost: bounded, whatever the path's length.
[[nodiscard]] std::string_view similar_route(std::string_view path);

[[nodiscard]] bool allows(const Route& route, std::string_view method);

// Whether the route is in OpenAI's API and, in another form, in Anthropic's.
[[nodiscard]] bool is_of_several_apis(const Route& route);

// Cross-origin rules (CORS): the web pages whose scripts may send requests.
struct CorsOptions {
  std::vector<std::string> origins = {"*"};  // as canonical_origin(); "*": any; empty: none
  std::vector<std::string> headers = {"*"};  // of requests; "*": any
};

// For a page that may ask, with credentials: its origin is named, as `*` would exclude those.
void add_cors_headers(const CorsOptions& cors, const HttpRequest& request, HttpHeaders& headers);

// The answer to OPTIONS. `route` may be null. `may_call`: false where the request itself would be
// refused to the page, whose browser then does not send it.
[[nodiscard]] HttpResponse answer_preflight(const CorsOptions& cors, const HttpRequest& request,
                                            const Route* route, bool may_call);

}  // namespace heddle::server
