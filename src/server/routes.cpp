// SPDX-License-Identifier: Apache-2.0
#include "server/routes.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/edit_distance.h"
#include "server/dashboard.h"

namespace heddle::server {
namespace {

constexpr std::array kRoutes = {
    Route{"/health", Endpoint::kHealth, "GET, HEAD", Access::kOpen},
    Route{"/health_generate", Endpoint::kHealthGenerate, "GET, HEAD", Access::kOpen},
    Route{"/livez", Endpoint::kLive, "GET, HEAD", Access::kOpen},
    Route{"/ping", Endpoint::kLive, "GET, HEAD", Access::kOpen},
    Route{"/readyz", Endpoint::kReady, "GET, HEAD", Access::kOpen},
    Route{"/get_model_info", Endpoint::kModelInfo, "GET, HEAD"},
    Route{"/model_info", Endpoint::kModelInfo, "GET, HEAD"},
    Route{"/get_server_info", Endpoint::kServerInfo, "GET, HEAD", Access::kAdmin},
    Route{"/server_info", Endpoint::kServerInfo, "GET, HEAD", Access::kAdmin},
    Route{"/v1/models", Endpoint::kModels, "GET, HEAD"},
    Route{"/v1/chat/completions", Endpoint::kChat, "POST", Access::kUser, true, kAnyBody},
    Route{"/v1/completions", Endpoint::kCompletions, "POST", Access::kUser, true, kAnyBody},
    Route{"/generate", Endpoint::kGenerate, "POST, PUT", Access::kUser, true, kAnyBody},
    Route{"/tokenize", Endpoint::kTokenize, "POST", Access::kUser, true, kAnyBody},
    Route{"/v1/tokenize", Endpoint::kTokenize, "POST", Access::kUser, true, kAnyBody},
    Route{"/detokenize", Endpoint::kDetokenize, "POST", Access::kUser, true, kAnyBody},
    Route{"/v1/detokenize", Endpoint::kDetokenize, "POST", Access::kUser, true, kAnyBody},
    Route{"/metrics", Endpoint::kMetrics, "GET, HEAD", Access::kOpen},
    Route{"/flush_cache", Endpoint::kFlushCache, "GET, POST", Access::kAdmin, true, kNoBody, true},
    Route{"/reset_prefix_cache", Endpoint::kFlushCache, "POST", Access::kAdmin, true, kNoBody,
          true},
    Route{"/pause_generation", Endpoint::kPause, "POST", Access::kAdmin, true, kSmallBody, true},
    Route{"/continue_generation", Endpoint::kContinue, "POST", Access::kAdmin, true, kNoBody, true},
    Route{"/abort_request", Endpoint::kAbort, "POST", Access::kUser, false, kSmallBody, true},
    Route{"/", Endpoint::kRoot, "GET, HEAD", Access::kOpen},
    Route{"/v1/responses", Endpoint::kResponses, "POST", Access::kUser, true, kAnyBody},
    Route{"/v1/messages", Endpoint::kMessages, "POST", Access::kUser, true, kAnyBody},
    Route{"/v1/messages/count_tokens", Endpoint::kCountTokens, "POST", Access::kUser, true,
          kAnyBody},
    Route{"/api/chat", Endpoint::kOllamaChat, "POST", Access::kUser, true, kAnyBody},
    Route{"/api/generate", Endpoint::kOllamaGenerate, "POST", Access::kUser, true, kAnyBody},
    Route{"/api/show", Endpoint::kOllamaShow, "POST", Access::kUser, true, kSmallBody},
    Route{"/api/tags", Endpoint::kOllamaModels, "GET, HEAD", Access::kUser, true},
    Route{"/api/ps", Endpoint::kOllamaRunning, "GET, HEAD", Access::kUser, true},
    Route{"/api/version", Endpoint::kOllamaVersion, "GET, HEAD"},
    Route{"/version", Endpoint::kVersion, "GET, HEAD"},
    Route{"/invocations", Endpoint::kInvocations, "POST", Access::kUser, true, kAnyBody},
    Route{"/vertex_generate", Endpoint::kVertex, "POST", Access::kUser, true, kAnyBody},
    Route{"/get_load", Endpoint::kLoad, "GET, HEAD"},
    Route{"/v1/loads", Endpoint::kLoads, "GET, HEAD"},
    Route{"/get_weight_version", Endpoint::kWeightVersion, "GET, HEAD"},
    Route{"/update_weight_version", Endpoint::kUpdateWeightVersion, "POST", Access::kAdmin, true,
          kSmallBody, true},
    Route{"/update_weights_from_disk", Endpoint::kUpdateWeights, "POST", Access::kAdmin, true,
          kSmallBody, true},
    Route{"/parse_function_call", Endpoint::kParseFunctionCall, "POST", Access::kUser, true,
          kAnyBody},
    Route{"/separate_reasoning", Endpoint::kSeparateReasoning, "POST", Access::kUser, true,
          kAnyBody},
    Route{"/start_profile", Endpoint::kStartProfile, "GET, POST", Access::kAdmin, true, kSmallBody,
          true},
    Route{"/stop_profile", Endpoint::kStopProfile, "GET, POST", Access::kAdmin, true, kNoBody,
          true},
    Route{"/configure_logging", Endpoint::kConfigureLogging, "GET, POST", Access::kAdmin, false,
          kSmallBody, true},
    Route{"/set_internal_state", Endpoint::kSetInternalState, "GET, POST, PUT", Access::kAdmin,
          false, kSmallBody, true},
    Route{"/slow_down", Endpoint::kSlowDown, "GET, POST", Access::kAdmin, true, kSmallBody, true},
    Route{"/open_session", Endpoint::kOpenSession, "GET, POST", Access::kUser, true, kSmallBody},
    Route{"/close_session", Endpoint::kCloseSession, "GET, POST", Access::kUser, true, kSmallBody},
    Route{"/openapi.json", Endpoint::kOpenApi, "GET, HEAD"},
    Route{"/docs", Endpoint::kDocs, "GET, HEAD"},
    Route{"/v1/files", Endpoint::kFiles, "GET, HEAD, POST", Access::kUser, true, kAnyBody},
    Route{"/v1/batches", Endpoint::kBatches, "GET, HEAD, POST", Access::kUser, true, kSmallBody},
    Route{"/inspect", Endpoint::kInspect, "GET, HEAD, POST", Access::kAdmin, false, kSmallBody,
          true},
};

// Routes that other servers have and this one answers with 501.
constexpr std::array<std::string_view, 33> kNotServed = {
    "/encode",
    "/classify",
    "/v1/embeddings",
    "/v1/classify",
    "/v1/rerank",
    "/v1/score",
    "/api/embed",
    "/api/embeddings",
    "/api/pull",
    "/api/push",
    "/api/create",
    "/api/copy",
    "/api/delete",
    "/load_lora_adapter",
    "/unload_lora_adapter",
    "/update_weights_from_tensor",
    "/update_weights_from_distributed",
    "/update_weights_from_ipc",
    "/init_weights_update_group",
    "/destroy_weights_update_group",
    "/get_weights_by_name",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/clear_hicache_storage_backend",
    "/freeze_gc",
    "/start_expert_distribution_record",
    "/stop_expert_distribution_record",
    "/dump_expert_distribution_record",
    "/v1/audio/transcriptions",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v1/moderations",
    "/v1/fine_tuning/jobs",
};
constexpr Route kNotServedRoute{"not served", Endpoint::kNotServed, "GET, HEAD, POST, PUT, DELETE"};
constexpr Route kOneResponseRoute{kResponsePrefix, Endpoint::kOneResponse,
                                  "GET, HEAD, POST, DELETE"};
constexpr Route kOneFileRoute{kFilePrefix, Endpoint::kOneFile, "GET, HEAD, DELETE", Access::kUser,
                              true};
constexpr Route kOneBatchRoute{kBatchPrefix, Endpoint::kOneBatch, "GET, HEAD, POST", Access::kUser,
                               true};
constexpr Route kDashboardRoute{kDashboardPrefix, Endpoint::kDashboard, "GET, HEAD", Access::kOpen};
constexpr Route kOneModelRoute{kModelPrefix, Endpoint::kOneModel, "GET, HEAD"};

constexpr size_t kMaxSimilarLength = 64;
constexpr size_t kMaxWrongLetters = 2;

// Whether a list of allowed names has this one, or "*".
bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::any_of(
      names, [name](const std::string& allowed) { return allowed == "*" || allowed == name; });
}

}  // namespace

std::vector<RouteSummary> route_summaries() {
  std::vector<RouteSummary> summaries;
  for (const Route& route : kRoutes) summaries.push_back({std::string(route.path), &route});
  summaries.push_back({std::string(kModelPrefix) + "{model}", &kOneModelRoute});
  summaries.push_back({std::string(kResponsePrefix) + "{response_id}", &kOneResponseRoute});
  summaries.push_back({std::string(kFilePrefix) + "{file_id}", &kOneFileRoute});
  summaries.push_back({std::string(kBatchPrefix) + "{batch_id}", &kOneBatchRoute});
  summaries.push_back({std::string(kDashboardPrefix) + "{file}", &kDashboardRoute});
  return summaries;
}

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
  }
  const auto lies_below = [path](std::string_view prefix) {
    return path.size() > prefix.size() && path.starts_with(prefix);
  };
  if (lies_below(kResponsePrefix)) return &kOneResponseRoute;
  if (lies_below(kFilePrefix)) return &kOneFileRoute;
  if (lies_below(kBatchPrefix)) return &kOneBatchRoute;
  if (lies_below(kDashboardPrefix)) return &kDashboardRoute;
  if (std::ranges::find(kNotServed, path) != kNotServed.end()) return &kNotServedRoute;
  return lies_below(kModelPrefix) ? &kOneModelRoute : nullptr;
}

std::string_view similar_route(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.empty() || path.size() > kMaxSimilarLength) return {};
  // Of those that are alike, the one that is most nearly as long.
  const auto rank = [path](std::string_view route) {
    const bool is_part = path.ends_with(route) || route.ends_with(path);
    return std::pair<size_t, size_t>(
        is_part ? 0 : edit_distance(path, route),
        std::max(path.size(), route.size()) - std::min(path.size(), route.size()));
  };
  std::string_view best;
  std::pair<size_t, size_t> best_rank = {kMaxWrongLetters + 1, 0};
  for (const Route& route : kRoutes) {
    if (route.path == "/" || rank(route.path) >= best_rank) continue;
    best = route.path;
    best_rank = rank(best);
  }
  return best;
}

bool allows(const Route& route, std::string_view method) {
  std::string_view rest = route.allow;
  while (!rest.empty()) {
    const size_t end = rest.find(", ");
    if (rest.substr(0, end) == method) return true;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 2);
  }
  return false;
}

void add_cors_headers(const CorsOptions& cors, const HttpRequest& request, HttpHeaders& headers) {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !has(cors.origins, origin)) return;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back("Access-Control-Allow-Credentials", "true");
  headers.emplace_back("Access-Control-Expose-Headers", "x-request-id");
  headers.emplace_back("Vary", "Origin");
}

HttpResponse answer_preflight(const CorsOptions& cors, const HttpRequest& request,
                              const Route* route) {
  HttpResponse response{.status = 204, .headers = {}, .body = {}};
  const std::string methods =
      route == nullptr ? "GET, HEAD, POST, PUT, OPTIONS" : fmt::format("{}, OPTIONS", route->allow);
  response.headers.emplace_back("Allow", methods);
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && !has(cors.origins, origin)) return response;
  response.headers.emplace_back("Access-Control-Allow-Methods", methods);
  const std::string_view wanted = request.header("access-control-request-headers");
  if (has(cors.headers, "*")) {
    if (!wanted.empty()) response.headers.emplace_back("Access-Control-Allow-Headers", wanted);
  } else if (!cors.headers.empty()) {
    response.headers.emplace_back("Access-Control-Allow-Headers",
                                  fmt::format("{}", fmt::join(cors.headers, ", ")));
  }
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

}  // namespace heddle::server
