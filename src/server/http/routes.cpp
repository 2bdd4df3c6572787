// SPDX-License-Identifier: Apache-2.0
#include "server/http/routes.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/edit_distance.h"
#include "server/http/web_origin.h"

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
    Route{"/get_server_info", Endpoint::kServerInfo, "GET, HEAD", Access::kAdmin, false, kNoBody,
          Concern::kStored},
    Route{"/server_info", Endpoint::kServerInfo, "GET, HEAD", Access::kAdmin, false, kNoBody,
          Concern::kStored},
    Route{"/v1/models", Endpoint::kModels, "GET, HEAD"},
    Route{"/v1/chat/completions", Endpoint::kChat, "POST", Access::kUser, true, kAnyBody},
    Route{"/v1/completions", Endpoint::kCompletions, "POST", Access::kUser, true, kAnyBody},
    Route{"/generate", Endpoint::kGenerate, "POST, PUT", Access::kUser, true, kAnyBody},
    Route{"/tokenize", Endpoint::kTokenize, "POST", Access::kUser, true, kAnyBody},
    Route{"/v1/tokenize", Endpoint::kTokenize, "POST", Access::kUser, true, kAnyBody},
    Route{"/detokenize", Endpoint::kDetokenize, "POST", Access::kUser, true, kAnyBody},
    Route{"/v1/detokenize", Endpoint::kDetokenize, "POST", Access::kUser, true, kAnyBody},
    Route{"/metrics", Endpoint::kMetrics, "GET, HEAD", Access::kOpen},
    Route{"/flush_cache", Endpoint::kFlushCache, "GET, POST", Access::kAdmin, true, kNoBody,
          Concern::kServer},
    Route{"/reset_prefix_cache", Endpoint::kFlushCache, "POST", Access::kAdmin, true, kNoBody,
          Concern::kServer},
    Route{"/pause_generation", Endpoint::kPause, "POST", Access::kAdmin, true, kSmallBody,
          Concern::kServer},
    Route{"/continue_generation", Endpoint::kContinue, "POST", Access::kAdmin, true, kNoBody,
          Concern::kServer},
    Route{"/abort_request", Endpoint::kAbort, "POST", Access::kUser, false, kSmallBody,
          Concern::kServer},
    Route{"/", Endpoint::kRoot, "GET, HEAD", Access::kOpen},
    Route{"/v1/responses", Endpoint::kResponses, "POST", Access::kUser, true, kAnyBody},
    Route{"/v1/responses/input_tokens", Endpoint::kResponseTokens, "POST", Access::kUser, true,
          kAnyBody},
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
          kSmallBody, Concern::kServer},
    Route{"/update_weights_from_disk", Endpoint::kUpdateWeights, "POST", Access::kAdmin, true,
          kSmallBody, Concern::kServer},
    Route{"/load_lora_adapter", Endpoint::kLoadAdapter, "POST", Access::kAdmin, true, kSmallBody,
          Concern::kServer},
    Route{"/unload_lora_adapter", Endpoint::kUnloadAdapter, "POST", Access::kAdmin, true,
          kSmallBody, Concern::kServer},
    Route{"/parse_function_call", Endpoint::kParseFunctionCall, "POST", Access::kUser, true,
          kAnyBody},
    Route{"/separate_reasoning", Endpoint::kSeparateReasoning, "POST", Access::kUser, true,
          kAnyBody},
    Route{"/start_profile", Endpoint::kStartProfile, "GET, POST", Access::kAdmin, true, kSmallBody,
          Concern::kServer},
    Route{"/stop_profile", Endpoint::kStopProfile, "GET, POST", Access::kAdmin, true, kNoBody,
          Concern::kServer},
    Route{"/configure_logging", Endpoint::kConfigureLogging, "GET, POST", Access::kAdmin, false,
          kSmallBody, Concern::kServer},
    Route{"/set_internal_state", Endpoint::kSetInternalState, "GET, POST, PUT", Access::kAdmin,
          false, kSmallBody, Concern::kServer},
    Route{"/slow_down", Endpoint::kSlowDown, "GET, POST", Access::kAdmin, true, kSmallBody,
          Concern::kServer},
    Route{"/open_session", Endpoint::kOpenSession, "GET, POST", Access::kUser, true, kSmallBody,
          Concern::kStored},
    Route{"/close_session", Endpoint::kCloseSession, "GET, POST", Access::kUser, true, kSmallBody,
          Concern::kStored},
    Route{"/openapi.json", Endpoint::kOpenApi, "GET, HEAD"},
    Route{"/docs", Endpoint::kDocs, "GET, HEAD"},
    Route{"/v1/files", Endpoint::kFiles, "GET, HEAD, POST", Access::kUser, true, kAnyBody,
          Concern::kStored},
    Route{"/v1/batches", Endpoint::kBatches, "GET, HEAD, POST", Access::kUser, true, kSmallBody,
          Concern::kStored},
    Route{"/inspect", Endpoint::kInspect, "GET, HEAD, POST", Access::kAdmin, false, kSmallBody,
          Concern::kServer},
};

// Routes that other servers have and this one answers with 501, including all paths below them. A
// route that is served itself is listed for the paths below it.
constexpr auto kNotServed = std::to_array<std::string_view>({
    // Routes of SGLang and vLLM.
    "/encode",
    "/classify",
    "/v1/classify",
    "/v1/rerank",
    "/v2/rerank",
    "/v1/score",
    "/pooling",
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
    // Routes of Ollama.
    "/api/embed",
    "/api/embeddings",
    "/api/pull",
    "/api/push",
    "/api/create",
    "/api/copy",
    "/api/delete",
    "/api/blobs",
    "/api/me",
    "/api/signout",
    "/api/web_search",
    "/api/web_fetch",
    "/api/experimental",
    // Routes of OpenAI.
    "/v1/assistants",
    "/v1/audio",
    "/v1/chat/completions",
    "/v1/chatkit",
    "/v1/containers",
    "/v1/content_provenance_checks",
    "/v1/conversations",
    "/v1/embeddings",
    "/v1/evals",
    "/v1/fine_tuning",
    "/v1/images",
    "/v1/moderations",
    "/v1/organization",
    "/v1/projects",
    "/v1/realtime",
    "/v1/responses/compact",
    "/v1/skills",
    "/v1/threads",
    "/v1/uploads",
    "/v1/vector_stores",
    "/v1/videos",
    // Routes of Anthropic.
    "/v1/agents",
    "/v1/complete",
    "/v1/deployment_runs",
    "/v1/deployments",
    "/v1/dreams",
    "/v1/environments",
    "/v1/memory_stores",
    "/v1/messages/batches",
    "/v1/organizations",
    "/v1/sessions",
    "/v1/user_profiles",
    "/v1/vaults",
});
constexpr Route kNotServedRoute{"not served", Endpoint::kNotServed,
                                "GET, HEAD, POST, PUT, PATCH, DELETE"};
constexpr Route kOneResponseRoute{
    kResponsePrefix, Endpoint::kOneResponse, "GET, HEAD, POST, DELETE", Access::kUser, false,
    kNoBody,         Concern::kStored};
constexpr Route kOneFileRoute{
    kFilePrefix, Endpoint::kOneFile, "GET, HEAD, DELETE", Access::kUser, true,
    kNoBody,     Concern::kStored};
constexpr Route kOneBatchRoute{
    kBatchPrefix, Endpoint::kOneBatch, "GET, HEAD, POST", Access::kUser, true,
    kNoBody,      Concern::kStored};
constexpr Route kDashboardRoute{kDashboardPrefix, Endpoint::kDashboard, "GET, HEAD", Access::kOpen};
constexpr Route kOneModelRoute{kModelPrefix, Endpoint::kOneModel, "GET, HEAD"};

constexpr std::string_view kVersionPrefix = "/v1";
constexpr size_t kMaxSimilarLength = 64;
constexpr size_t kMaxWrongLetters = 2;
// Letters of the path's last part per wrong letter allowed.
constexpr size_t kLettersForAWrongOne = 4;

// Whether a list of allowed names contains this name or "*".
bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::any_of(
      names, [name](const std::string& allowed) { return allowed == "*" || allowed == name; });
}

}  // namespace

std::vector<RouteSummary> route_summaries() {
  std::vector<RouteSummary> summaries;
  for (const Route& route : kRoutes) {
    summaries.push_back({std::string(route.path), &route, route.allow});
  }
  const auto add = [&summaries](const Route& route, std::string_view below,
                                std::string_view allow) {
    summaries.push_back({fmt::format("{}{}", route.path, below), &route, allow});
  };
  add(kOneModelRoute, "{model}", kOneModelRoute.allow);
  add(kOneResponseRoute, "{response_id}", "GET, HEAD, DELETE");
  add(kOneResponseRoute, "{response_id}/input_items", "GET, HEAD");
  add(kOneResponseRoute, "{response_id}/cancel", "POST");
  add(kOneFileRoute, "{file_id}", kOneFileRoute.allow);
  add(kOneFileRoute, "{file_id}/content", "GET, HEAD");
  add(kOneBatchRoute, "{batch_id}", "GET, HEAD");
  add(kOneBatchRoute, "{batch_id}/cancel", "POST");
  add(kDashboardRoute, "{file}", kDashboardRoute.allow);
  return summaries;
}

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
  }
  const auto lies_below = [path](std::string_view prefix) {
    return path.size() > prefix.size() && path.starts_with(prefix);
  };
  // Checked before the prefixes, because /v1/responses/compact does not name a response.
  if (std::ranges::find(kNotServed, path) != kNotServed.end()) return &kNotServedRoute;
  if (lies_below(kResponsePrefix)) return &kOneResponseRoute;
  if (lies_below(kFilePrefix)) return &kOneFileRoute;
  if (lies_below(kBatchPrefix)) return &kOneBatchRoute;
  if (lies_below(kDashboardPrefix)) return &kDashboardRoute;
  if (lies_below(kModelPrefix)) return &kOneModelRoute;
  const bool is_not_served = std::ranges::any_of(kNotServed, [path](std::string_view name) {
    return path.starts_with(name) && (path.size() == name.size() ||
                                      (path[name.size()] == '/' && path.size() > name.size() + 1));
  });
  return is_not_served ? &kNotServedRoute : nullptr;
}

std::string known_path(std::string path) {
  const size_t end = path.find_last_not_of('/');
  std::string plain = path.substr(0, end == std::string::npos ? 1 : end + 1);
  if (find_route(plain) != nullptr) return plain;
  if (plain.starts_with(kVersionPrefix) && plain.size() > kVersionPrefix.size() + 1) {
    std::string shorter = plain.substr(kVersionPrefix.size());
    if (find_route(shorter) != nullptr) return shorter;
  }
  std::string longer = std::string(kVersionPrefix) + plain;
  return find_route(longer) != nullptr ? longer : path;
}

bool is_of_several_apis(const Route& route) {
  return route.endpoint == Endpoint::kModels || route.endpoint == Endpoint::kOneModel ||
         route.endpoint == Endpoint::kFiles || route.endpoint == Endpoint::kOneFile;
}

std::string_view similar_route(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.empty() || path.size() > kMaxSimilarLength) return {};
  // Among routes with equal distance the one whose length is closest is preferred.
  const auto rank = [path](std::string_view route) {
    const bool is_part = path.ends_with(route) || route.ends_with(path);
    return std::pair<size_t, size_t>(
        is_part ? 0 : edit_distance(path, route),
        std::max(path.size(), route.size()) - std::min(path.size(), route.size()));
  };
  // Fewer wrong letters are allowed in short names, which differ from other short names by few
  // letters anyway.
  const size_t last_part = path.size() - (path.rfind('/') + 1);
  const size_t max_wrong_letters = std::min(kMaxWrongLetters, last_part / kLettersForAWrongOne);
  std::string_view best;
  std::pair<size_t, size_t> best_rank = {max_wrong_letters + 1, 0};
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
  if (origin.empty() || !has(cors.origins, canonical_origin(origin))) return;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back("Access-Control-Allow-Credentials", "true");
  headers.emplace_back("Access-Control-Expose-Headers", "x-request-id");
  headers.emplace_back("Vary", "Origin");
}

HttpResponse answer_preflight(const CorsOptions& cors, const HttpRequest& request,
                              const Route* route, bool may_call) {
  HttpResponse response{.status = 204, .headers = {}, .body = {}};
  const std::string methods =
      route == nullptr ? "GET, HEAD, POST, PUT, OPTIONS" : fmt::format("{}, OPTIONS", route->allow);
  response.headers.emplace_back("Allow", methods);
  const std::string_view origin = request.header("origin");
  if (!may_call || (!origin.empty() && !has(cors.origins, canonical_origin(origin)))) {
    return response;
  }
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
