// SPDX-License-Identifier: Apache-2.0
#include "server/http/request_gate.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kOther = "http://other.example";  // a web page that is not the server's
constexpr const char* kUserKey = "sk-of-a-user";
constexpr const char* kAdminKey = "sk-of-the-admin";

HttpRequest request_of(std::string method, std::string path, HttpHeaders headers = {}) {
  HttpRequest request{.method = std::move(method), .path = std::move(path)};
  request.headers = std::move(headers);
  request.headers.emplace_back("host", "here.example:30000");
  return request;
}

// With a key, "" for none, and a body of JSON.
HttpRequest keyed(std::string method, std::string path, std::string_view key) {
  HttpHeaders headers = {{"content-type", "application/json"}};
  if (!key.empty()) headers.emplace_back("authorization", "Bearer " + std::string(key));
  return request_of(std::move(method), std::move(path), std::move(headers));
}

class RequestGateTest : public ::testing::Test {
 protected:
  RequestGateTest() {
    options.error_style = ErrorStyle::kOpenAi;
    options.allowed_hosts = {"here.example"};
  }

  // Change them before the first request.
  GateOptions options;
  std::optional<ApiError> closed;

  RequestGate& gate() {
    if (!gate_) gate_.emplace(options);
    return *gate_;
  }

  HttpRequest identified(HttpRequest request) {
    HttpHeaders common;
    gate().identify(request, common);
    return request;
  }

  std::optional<HttpResponse> refusal_of(HttpRequest request) {
    request = identified(std::move(request));
    return gate().refusal_of(request, find_route(request.path), closed);
  }

  // The status and the code of a refusal: "404 not_found"; "" for a request that is taken.
  std::string refusal(HttpRequest request) {
    const auto response = refusal_of(std::move(request));
    if (!response) return "";
    const auto body = nlohmann::json::parse(response->body, nullptr, /*allow_exceptions=*/false);
    return std::to_string(response->status) + " " + body["error"]["code"].get<std::string>();
  }

 private:
  std::optional<RequestGate> gate_;
};

TEST_F(RequestGateTest, TakesAProxysPrefixOffThePath) {
  options.root_path = "/llm";
  EXPECT_EQ(identified(request_of("GET", "/llm/v1/models")).path, "/v1/models");
  EXPECT_EQ(identified(request_of("GET", "/llm")).path, "/");
  EXPECT_EQ(identified(request_of("GET", "/v1/models")).path, "/v1/models");
  EXPECT_EQ(identified(request_of("GET", "/llms/v1")).path, "/llms/v1");
}

TEST_F(RequestGateTest, ARequestKeepsItsIdOrGetsOneThatItsPathShows) {
  HttpHeaders common;
  HttpRequest request = request_of("POST", "/v1/chat/completions", {{"x-request-id", "mine"}});
  gate().identify(request, common);
  EXPECT_EQ(request.id, "mine");
  ASSERT_FALSE(common.empty());
  EXPECT_EQ(common.front(), std::pair(std::string("x-request-id"), request.id));

  const std::pair<const char*, const char*> prefixes[] = {
      {"/v1/chat/completions", "chatcmpl-"},
      {"/v1/completions", "cmpl-"},
      {"/v1/messages", "msg_"},
      {"/v1/responses", "resp_"},
      {"/generate", "req-"},
  };
  for (const auto& [path, prefix] : prefixes) {
    EXPECT_THAT(identified(request_of("POST", path)).id, StartsWith(prefix));
    EXPECT_THAT(identified(request_of("POST", path, {{"x-request-id", "not an id"}})).id,
                StartsWith(prefix));
  }
}

TEST_F(RequestGateTest, ErrorsHaveTheFormOfThePathsApi) {
  options.overload_status = 429;
  const auto form = [this](const char* path) {
    return identified(request_of("POST", path)).error_form;
  };
  EXPECT_EQ(form("/v1/messages/count_tokens").style, ErrorStyle::kAnthropic);
  EXPECT_EQ(form("/api/chat").style, ErrorStyle::kOllama);
  EXPECT_EQ(form("/v1/completions").style, ErrorStyle::kOpenAi);
  EXPECT_EQ(form("/v1/completions").overload_status, 429);
}

TEST_F(RequestGateTest, ErrorsOfSharedAndUnknownPathsHaveTheFormOfTheAskingClient) {
  const auto style = [this](const char* path) {
    return identified(request_of("GET", path, {{"anthropic-version", "2023-06-01"}}))
        .error_form.style;
  };
  for (const char* path :
       {"/v1/models", "/v1/models/m", "/v1/nothing", "/v1/complete", "/v1/files"}) {
    EXPECT_EQ(style(path), ErrorStyle::kAnthropic) << path;
  }
  EXPECT_EQ(style("/v1/chat/completions"), ErrorStyle::kOpenAi);
  EXPECT_EQ(style("/api/tags"), ErrorStyle::kOllama);
}

TEST_F(RequestGateTest, NamesThePathOrTheMethodThatWasPerhapsMeant) {
  const auto unknown = refusal_of(request_of("POST", "/v1/chat/completion"));
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->status, 404);
  EXPECT_THAT(unknown->body, HasSubstr("Did you mean /v1/chat/completions?"));
  EXPECT_EQ(identified(request_of("POST", "/chat/completions")).path, "/v1/chat/completions");
  EXPECT_EQ(refusal(request_of("GET", "/nothing/like/it")), "404 not_found");

  const auto other = refusal_of(request_of("GET", "/v1/chat/completions"));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->status, 405);
  EXPECT_THAT(other->headers,
              ::testing::Contains(std::pair(std::string("Allow"), std::string("POST"))));
  EXPECT_EQ(refusal_of(request_of("OPTIONS", "/v1/chat/completions"))->status, 204);
  EXPECT_EQ(refusal(keyed("POST", "/v1/embeddings", "")), "501 not_supported");
}

TEST_F(RequestGateTest, WithoutKeysEveryoneMayAskAndSteer) {
  EXPECT_EQ(refusal(keyed("POST", "/v1/completions", "")), "");
  EXPECT_EQ(refusal(keyed("POST", "/flush_cache", "")), "");
  EXPECT_TRUE(gate().may_steer(keyed("POST", "/flush_cache", "")));
}

TEST_F(RequestGateTest, AUsersKeyMaySteerWhereThereIsNoOther) {
  options.api_key = kUserKey;
  for (const char* const path : {"/v1/completions", "/flush_cache"}) {
    EXPECT_EQ(refusal(keyed("POST", path, "")), "401 invalid_api_key");
    EXPECT_EQ(refusal(keyed("POST", path, "sk-of-nobody")), "401 invalid_api_key");
    EXPECT_EQ(refusal(keyed("POST", path, kUserKey)), "");
  }
  EXPECT_EQ(refusal(keyed("GET", "/health", "")), "") << "it is open";
  EXPECT_TRUE(gate().may_steer(keyed("POST", "/flush_cache", kUserKey)));
  EXPECT_FALSE(gate().may_steer(keyed("POST", "/flush_cache", "")));
}

TEST_F(RequestGateTest, TheAdminsKeyAloneSteers) {
  options.api_key = kUserKey;
  options.admin_api_key = kAdminKey;
  EXPECT_EQ(refusal(keyed("POST", "/v1/completions", kUserKey)), "");
  EXPECT_EQ(refusal(keyed("POST", "/flush_cache", kUserKey)), "403 admin_key_required");
  EXPECT_EQ(refusal(keyed("POST", "/flush_cache", "")), "401 invalid_api_key");
  EXPECT_EQ(refusal(keyed("POST", "/flush_cache", kAdminKey)), "");
  EXPECT_FALSE(gate().may_steer(keyed("POST", "/flush_cache", kUserKey)));
  EXPECT_TRUE(gate().may_steer(keyed("POST", "/flush_cache", kAdminKey)));
}

TEST_F(RequestGateTest, ABodyHasTheTypeThatItsRouteReads) {
  const auto sent_as = [](const char* path, const char* type, const char* encoding = "") {
    return request_of("POST", path, {{"content-type", type}, {"content-encoding", encoding}});
  };
  constexpr const char* kPath = "/v1/completions";
  EXPECT_EQ(refusal(sent_as(kPath, " Application/JSON; charset=utf-8")), "");
  EXPECT_EQ(refusal(sent_as(kPath, "text/plain")), "400 invalid_value");
  EXPECT_EQ(refusal(sent_as(kPath, "")), "400 invalid_value");
  EXPECT_EQ(refusal(sent_as("/generate", "text/plain")), "") << "as clients of it send";
  EXPECT_EQ(refusal(sent_as(kPath, "application/json", "Identity")), "");
  EXPECT_EQ(refusal(sent_as(kPath, "application/json", "gzip")), "415 unsupported_media_type");
  EXPECT_EQ(refusal(sent_as("/v1/files", "multipart/form-data; boundary=b")), "");
  EXPECT_EQ(refusal(sent_as("/v1/files", "application/json")), "400 invalid_value");
}

TEST_F(RequestGateTest, AWebPageOfAnotherOriginSteersNothingUnlessAKeyDoes) {
  const auto from_page = [](const char* path, HttpHeaders headers) {
    headers.emplace_back("authorization", std::string("Bearer ") + kUserKey);
    return request_of("POST", path, std::move(headers));
  };
  EXPECT_EQ(refusal(from_page("/flush_cache", {{"origin", kOther}})), "403 cross_origin");
  EXPECT_EQ(refusal(from_page("/flush_cache", {{"origin", "null"}})), "403 cross_origin");
  EXPECT_EQ(refusal(from_page("/flush_cache", {{"sec-fetch-site", "cross-site"}})),
            "403 cross_origin");
  EXPECT_EQ(refusal(from_page("/flush_cache", {{"origin", "http://Here.example:30000"}})), "");
  EXPECT_EQ(refusal(from_page("/flush_cache", {{"content-type", "text/plain"}})),
            "415 unsupported_media_type");
  EXPECT_EQ(refusal(from_page("/v1/files", {{"origin", kOther},
                                            {"content-type", "multipart/form-data; boundary=b"}})),
            "403 cross_origin");
  EXPECT_EQ(refusal(from_page("/v1/completions",
                              {{"origin", kOther}, {"content-type", "application/json"}})),
            "");

  GateOptions with_key;
  with_key.api_key = kUserKey;
  RequestGate other(with_key);
  HttpRequest request = from_page("/flush_cache", {{"origin", kOther}});
  EXPECT_FALSE(other.refusal_of(request, find_route(request.path), closed));
}

// The first routes steer, or show or change what is stored; a page may call the others.
TEST_F(RequestGateTest, EveryRouteThatShowsOrChangesWhatIsStoredIsGuarded) {
  const std::pair<const char*, const char*> guarded[] = {{"GET", "/v1/files"},
                                                         {"POST", "/v1/files"},
                                                         {"GET", "/v1/files/f"},
                                                         {"DELETE", "/v1/files/f"},
                                                         {"GET", "/v1/files/f/content"},
                                                         {"GET", "/files/f"},
                                                         {"GET", "/v1/batches"},
                                                         {"POST", "/v1/batches"},
                                                         {"GET", "/v1/batches/b"},
                                                         {"POST", "/v1/batches/b/cancel"},
                                                         {"GET", "/v1/responses/r"},
                                                         {"GET", "/v1/responses/r/input_items"},
                                                         {"DELETE", "/v1/responses/r"},
                                                         {"POST", "/v1/responses/r/cancel"},
                                                         {"POST", "/open_session"},
                                                         {"GET", "/close_session"},
                                                         {"GET", "/server_info"},
                                                         {"GET", "/get_server_info"},
                                                         {"GET", "/flush_cache"},
                                                         {"POST", "/v1/flush_cache"},
                                                         {"POST", "/abort_request"},
                                                         {"POST", "/pause_generation"},
                                                         {"POST", "/start_profile"},
                                                         {"POST", "/stop_profile"},
                                                         {"GET", "/configure_logging"},
                                                         {"PUT", "/set_internal_state"},
                                                         {"POST", "/slow_down"},
                                                         {"POST", "/update_weights_from_disk"},
                                                         {"POST", "/update_weight_version"},
                                                         {"POST", "/load_lora_adapter"},
                                                         {"POST", "/unload_lora_adapter"},
                                                         {"GET", "/inspect"},
                                                         {"POST", "/continue_generation"},
                                                         {"POST", "/reset_prefix_cache"}};
  for (const auto& [method, path] : guarded) {
    EXPECT_EQ(refusal(request_of(method, path, {{"origin", kOther}})), "403 cross_origin") << path;
    HttpRequest rebound{.method = method, .path = path};
    rebound.headers = {{"host", "evil.example"}, {"origin", "http://evil.example"}};
    EXPECT_EQ(refusal(rebound), "403 unknown_host") << path;
  }
  const std::pair<const char*, const char*> open[] = {
      {"GET", "/"},           {"GET", "/dashboard/app.js"}, {"GET", "/health"},
      {"GET", "/metrics"},    {"GET", "/v1/models"},        {"GET", "/v1/models/m"},
      {"GET", "/model_info"}, {"GET", "/get_load"},         {"GET", "/api/tags"}};
  for (const auto& [method, path] : open) {
    HttpRequest rebound{.method = method, .path = path};
    rebound.headers = {{"host", "evil.example"}, {"origin", kOther}};
    EXPECT_EQ(refusal(rebound), "") << path;
  }
  for (const char* const path : {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                 "/v1/messages", "/api/chat", "/generate", "/tokenize"}) {
    const HttpRequest taken = identified(
        request_of("POST", path, {{"origin", kOther}, {"content-type", "application/json"}}));
    EXPECT_EQ(refusal(taken), "") << path;
    EXPECT_THAT(taken.stored_refusal, HasSubstr("--cors-allow-origins"))
        << "but uses nothing stored";
  }
}

TEST_F(RequestGateTest, WithAnAdminKeyAloneWhatUsersStoreIsGuardedStill) {
  options.admin_api_key = kAdminKey;
  EXPECT_EQ(refusal(request_of("GET", "/v1/files", {{"origin", kOther}})), "403 cross_origin");
  HttpRequest flush = keyed("POST", "/flush_cache", kAdminKey);
  flush.headers.emplace_back("origin", kOther);
  EXPECT_EQ(refusal(flush), "") << "no page has the key";
}

TEST_F(RequestGateTest, APreflightAllowsAPageWhatItsRequestMayDo) {
  options.cors.origins = {"*", "https://named.example"};
  const auto preflight = [this](const char* path, const char* origin) {
    HttpRequest request = request_of(
        "OPTIONS", path, {{"origin", origin}, {"access-control-request-method", "DELETE"}});
    HttpHeaders common;
    gate().identify(request, common);
    auto response = gate().refusal_of(request, find_route(request.path), closed);
    EXPECT_EQ(response->status, 204);
    response->headers.insert(response->headers.begin(), common.begin(), common.end());
    std::string allowed;
    for (const auto& [name, value] : response->headers) {
      if (name == "Access-Control-Allow-Origin") allowed += value + " ";
      if (name == "Access-Control-Allow-Methods") allowed += value;
    }
    return allowed;
  };
  EXPECT_EQ(preflight("/v1/files/f", kOther), "");
  EXPECT_EQ(preflight("/v1/files/f", "null"), "");
  EXPECT_EQ(preflight("/v1/files/f", "https://named.example"),
            "https://named.example GET, HEAD, DELETE, OPTIONS");
  EXPECT_EQ(preflight("/v1/completions", kOther), "http://other.example POST, OPTIONS");
}

TEST_F(RequestGateTest, RoutesThatNeedTheModelAreClosedWhileItLoads) {
  closed = loading_error();
  const auto response = refusal_of(keyed("POST", "/v1/completions", ""));
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, closed->status);
  EXPECT_EQ(refusal(keyed("GET", "/health", "")), "");
  EXPECT_EQ(refusal(keyed("GET", "/v1/models", "")), "");
}

TEST_F(RequestGateTest, ARequestCountsForItsKeyUntilItIsForgotten) {
  options.api_keys = {{.secret = kUserKey, .name = "alice", .max_requests = 1}};
  HttpRequest first = identified(keyed("POST", "/v1/completions", kUserKey));
  ASSERT_NE(first.key, nullptr);
  EXPECT_EQ(first.key->name, "alice");
  EXPECT_FALSE(gate().refusal_of(first, find_route(first.path), closed));
  EXPECT_TRUE(first.counted);
  EXPECT_THAT(refusal(keyed("POST", "/v1/completions", kUserKey)), StartsWith("429"));

  HttpRequest control = identified(keyed("POST", "/flush_cache", kUserKey));
  EXPECT_FALSE(gate().refusal_of(control, find_route(control.path), closed));
  EXPECT_FALSE(control.counted);
  gate().forget(control);
  EXPECT_THAT(refusal(keyed("POST", "/v1/completions", kUserKey)), StartsWith("429"));

  gate().forget(first);
  EXPECT_EQ(refusal(keyed("POST", "/v1/completions", kUserKey)), "");
}

}  // namespace
}  // namespace heddle::server
