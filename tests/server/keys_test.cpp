// SPDX-License-Identifier: Apache-2.0
// API keys, the limits of their holders, the admin key, and the forms of errors.
#include <chrono>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/http/caller.h"
#include "server/http/key_ring.h"
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

std::string bearer(std::string_view key) {
  return fmt::format("Authorization: Bearer {}\r\n", key);
}

class KeysTest : public ServerTest {
 protected:
  [[nodiscard]] Reply ask(std::string_view key, const Json& body = chat_body(),
                          std::string_view path = "/v1/chat/completions") const {
    return HttpClient(server->port()).call("POST", path, body.dump(), bearer(key));
  }

  [[nodiscard]] int status_of(std::string_view method, std::string_view path,
                              std::string_view key) const {
    return HttpClient(server->port()).call(method, path, "", key.empty() ? "" : bearer(key)).status;
  }

  void use_keys(std::string_view lines) {
    auto keys = parse_api_keys(lines);
    ASSERT_TRUE(keys.ok()) << keys.status().to_string();
    options.api_keys = *std::move(keys);
  }
};

TEST(ApiKeysFileTest, NamesTheLineThatIsWrongAndNeverTheKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"sk-secret-1", "has no name"},
      {"sk-secret-1 rpm=3", "has no name"},
      {"short me", "at least 8"},
      {"sk-secret-1 a/b", "the name must be"},
      {"sk-secret-1 me rpm=0", "rpm=0 must be a whole number above 0"},
      {"sk-secret-1 me tpm=x", "tpm=x must be a whole number"},
      {"sk-secret-1 me weigh=2", "\"weigh=2\" is not known"},
      {"sk-secret-1 me weight=0", "weight=0 must be a number from 0.001 to 1000"},
      {"sk-secret-1 me weight=nan", "weight=nan must be a number"},
      {"sk-secret-1 me max_queued=0", "max_queued=0 must be a whole number above 0"},
      {"sk-secret-1 me models=", "models= names no model"},
      {"sk-secret-1 me models=,", "models= names no model"},
      {"sk-secret-1 me rpm=1 tpm=2 rpm=3", "rpm= is given twice"},
      {"sk-secret-1 me models=a models=b", "models= is given twice"},
      {"sk-secret-0 you", "the key stands in an earlier line"},
      {"sk-secret-1 first", "the name first stands in an earlier line"},
  };
  for (const auto& [line, complaint] : cases) {
    const auto keys = parse_api_keys(fmt::format("# keys\n\nsk-secret-0 first\n  {}\r\n", line));
    ASSERT_FALSE(keys.ok()) << line;
    EXPECT_THAT(keys.status().message(), HasSubstr(complaint));
    EXPECT_THAT(keys.status().message(), HasSubstr("line 4"));
    EXPECT_THAT(keys.status().message(), Not(HasSubstr("sk-secret")));
  }
}

TEST(ApiKeysFileTest, ReadsNamesAndLimits) {
  const auto keys = parse_api_keys(
      "\xEF\xBB\xBFsk-secret-1\talice rpm=60 tpm=1000 max_requests=2 priority=-3 models=a,b "
      "weight=2.5 "
      "max_running=3 max_queued=4\n"
      "sk-secret-2 bob");
  ASSERT_TRUE(keys.ok()) << keys.status().to_string();
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0].secret, "sk-secret-1");
  EXPECT_EQ((*keys)[0].name, "alice");
  EXPECT_EQ((*keys)[0].requests_per_minute, 60);
  EXPECT_EQ((*keys)[0].tokens_per_minute, 1000);
  EXPECT_EQ((*keys)[0].max_requests, 2);
  EXPECT_EQ((*keys)[0].priority, -3);
  EXPECT_THAT((*keys)[0].models, ::testing::ElementsAre("a", "b"));
  EXPECT_EQ((*keys)[0].terms.weight, 2.5);
  EXPECT_EQ((*keys)[0].terms.max_running, 3);
  EXPECT_EQ((*keys)[0].terms.max_queued, 4);
  EXPECT_TRUE((*keys)[1].models.empty());
  EXPECT_EQ((*keys)[1].terms.weight, 1);
  EXPECT_FALSE((*keys)[1].terms.max_queued);
}

TEST_F(KeysTest, TheTermsOfAKeyReachTheEngine) {
  use_keys("sk-secret-1 alice weight=2 max_running=3\n");
  start();
  EXPECT_EQ(ask("sk-secret-1").status, 200);
  const Request request = engine->submitted().at(0);
  EXPECT_EQ(request.tenant, "alice");
  EXPECT_EQ(request.tenant_terms.weight, 2);
  EXPECT_EQ(request.tenant_terms.max_running, 3);
}

TEST(KeyRingTest, ABucketHoldsAMinutesShareAndFillsAgain) {
  KeyRing ring("", "");
  const ApiKey key{.secret = "sk-secret-1", .name = "a", .requests_per_minute = 2};
  const auto start = Clock::now();
  EXPECT_FALSE(ring.begin_request(key, start));
  EXPECT_FALSE(ring.begin_request(key, start));
  const auto refused = ring.begin_request(key, start);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  EXPECT_EQ(refused->retry_after_seconds, 30);
  EXPECT_TRUE(ring.begin_request(key, start + std::chrono::seconds(29)));
  EXPECT_FALSE(ring.begin_request(key, start + std::chrono::seconds(31)));
}

TEST(KeyRingTest, TokensThatWereOverdrawnAreWaitedFor) {
  KeyRing ring("", "");
  const ApiKey key{.secret = "sk-secret-1", .name = "a", .tokens_per_minute = 60};
  const auto start = Clock::now();
  EXPECT_FALSE(ring.begin_request(key, start));
  ring.charge_tokens(key, 100, start);
  const auto refused = ring.begin_request(key, start);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry_after_seconds, 41);
  EXPECT_FALSE(ring.begin_request(key, start + std::chrono::seconds(42)));
}

TEST(KeyRingTest, UsageOfAHolderSurvivesTheReplacementOfKeys) {
  KeyRing ring("", "");
  const ApiKey key{.secret = "sk-secret-1", .name = "a", .max_requests = 1};
  ring.replace_named({key});
  EXPECT_FALSE(ring.begin_request(key, Clock::now()));
  ring.replace_named({});
  EXPECT_FALSE(ring.find("sk-secret-1").known);
  ring.replace_named({key});
  EXPECT_TRUE(ring.begin_request(key, Clock::now()));
  ring.end_request(key);
  EXPECT_FALSE(ring.begin_request(key, Clock::now()));
}

TEST(EqualInConstantTimeTest, IsEqual) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abd", "abc"));
  EXPECT_FALSE(equal_in_constant_time("ab", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abcd", "abc"));
  EXPECT_FALSE(equal_in_constant_time(std::string_view("abc\0", 4), "abc"));
}

TEST_F(KeysTest, ANamedKeyIsTheTenantOfItsRequests) {
  use_keys("sk-secret-1 alice priority=7\nsk-secret-2 bob");
  start();
  EXPECT_EQ(ask("sk-secret-1", chat_body({{"user", "mallory"}})).status, 200);
  EXPECT_EQ(ask("sk-secret-2", chat_body({{"priority", 3}})).status, 200);
  EXPECT_EQ(ask("sk-secret-3").status, 401);
  EXPECT_EQ(HttpClient(server->port()).post("/v1/chat/completions", chat_body()).status, 401);
  const std::vector<Request> requests = engine->submitted();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].tenant, "alice");
  EXPECT_EQ(requests[0].priority, 7);
  EXPECT_EQ(requests[1].tenant, "bob");
  EXPECT_EQ(requests[1].priority, 3);
}

TEST_F(KeysTest, BeyondALimitTheAnswerSaysWhenToComeBack) {
  use_keys("sk-secret-1 alice rpm=1\nsk-secret-2 bob");
  start();
  EXPECT_EQ(ask("sk-secret-1").status, 200);
  const Reply refused = ask("sk-secret-1");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(error_of(refused)["code"], "rate_limit_exceeded");
  EXPECT_EQ(error_of(refused)["type"], "rate_limit_error");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(ask("sk-secret-2").status, 200) << "others have limits of their own";
  EXPECT_EQ(status_of("GET", "/v1/models", "sk-secret-1"), 200) << "only calls of the model count";
}

TEST_F(KeysTest, AResponseInTheBackgroundCountsUntilItEnds) {
  use_keys("sk-secret-1 alice max_requests=1");
  engine->held = true;
  start();
  const std::string body = Json{{"input", "Hi"}, {"background", true}}.dump();
  HttpClient client(server->port());
  const auto ask_in_background = [&] {
    return client.call("POST", "/v1/responses", body, bearer("sk-secret-1")).status;
  };
  ASSERT_EQ(ask_in_background(), 200);
  EXPECT_EQ(ask_in_background(), 429);
  engine->held = false;
  EXPECT_TRUE(eventually([&] { return ask_in_background() == 200; }));
  EXPECT_TRUE(eventually([this] { return ask("sk-secret-1").status == 200; }));
}

TEST_F(KeysTest, RequestsUnderWayAreCountedUntilTheyEnd) {
  use_keys("sk-secret-1 alice max_requests=1");
  engine->held = true;
  start();
  HttpClient first(server->port());
  first.send_request("POST", "/v1/chat/completions", chat_body().dump(), bearer("sk-secret-1"));
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  EXPECT_EQ(ask("sk-secret-1").status, 429);
  engine->held = false;
  EXPECT_EQ(first.read_reply().status, 200);
  EXPECT_TRUE(eventually([this] { return ask("sk-secret-1").status == 200; }));
}

TEST_F(KeysTest, ARequestWhoseClientLeftCountsNoMore) {
  use_keys("sk-secret-1 alice max_requests=1");
  engine->held = true;
  start();
  HttpClient first(server->port());
  first.send_request("POST", "/v1/chat/completions", chat_body().dump(), bearer("sk-secret-1"));
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  first.close();
  engine->held = false;
  EXPECT_TRUE(eventually([this] { return ask("sk-secret-1").status == 200; }));
}

TEST_F(KeysTest, TokensOfPromptsAndAnswersAreCharged) {
  use_keys("sk-secret-1 alice tpm=5");
  engine->script = [](const Request&) {
    std::vector<RequestEvent> events = answer_events({"Hello"});
    events.back().prompt_tokens = 4;
    events.back().completion_tokens = 2;
    return events;
  };
  start();
  EXPECT_EQ(ask("sk-secret-1").status, 200);
  const Reply refused = ask("sk-secret-1");
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(error_of(refused)["message"].get<std::string>(), HasSubstr("5 tokens a minute"));
}

TEST_F(KeysTest, AKeySeesItsModelsOnly) {
  use_keys("sk-secret-1 alice models=m");
  options.served_model_names = {"m", "other"};
  start();
  EXPECT_EQ(ask("sk-secret-1", chat_body({{"model", "m"}})).status, 200);
  const Reply refused = ask("sk-secret-1", chat_body({{"model", "other"}}));
  EXPECT_EQ(refused.status, 404);
  EXPECT_EQ(error_of(refused)["code"], "model_not_found");
  HttpClient client(server->port());
  EXPECT_EQ(client.call("GET", "/v1/models", "", bearer("sk-secret-1")).json()["data"].size(), 1u);
  EXPECT_EQ(status_of("GET", "/v1/models/other", "sk-secret-1"), 404);
}

TEST_F(KeysTest, AKeysModelsHoldOnEveryRoute) {
  use_keys("sk-secret-1 alice models=other,third\nsk-secret-2 bob models=b");
  options.served_model_names = {"a", "b"};
  start();
  const std::pair<const char*, const char*> routes[] = {
      {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}]})"},
      {"/v1/completions", R"({"prompt": "a"})"},
      {"/v1/responses", R"({"input": "a"})"},
      {"/v1/messages", R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5})"},
      {"/v1/messages/count_tokens", R"({"messages": [{"role": "user", "content": "Hi"}]})"},
      {"/api/chat", R"({"model": "b", "messages": [{"role": "user", "content": "Hi"}]})"},
      {"/api/generate", R"({"model": "b", "prompt": "a"})"},
      {"/api/show", R"({"model": "b"})"},
      {"/generate", R"({"text": "a"})"},
      {"/invocations", R"({"text": "a"})"},
      {"/vertex_generate", R"({"instances": [{"text": "a"}]})"},
      {"/tokenize", R"({"prompt": "a"})"},
      {"/detokenize", R"({"tokens": [65]})"},
      {"/separate_reasoning", R"({"text": "a", "reasoning_parser": "qwen3"})"},
      {"/open_session", R"({"capacity_of_str_len": 100})"},
      {"/flush_cache", ""}};
  HttpClient client(server->port());
  for (const auto& [path, body] : routes) {
    EXPECT_EQ(client.call("POST", path, body, bearer("sk-secret-1")).status, 404) << path;
    const Reply taken = client.call("POST", path, body, bearer("sk-secret-2"));
    EXPECT_EQ(taken.status, 200) << path << " " << taken.body;
  }
  for (const char* path : {"/model_info", "/v1/files", "/v1/batches", "/v1/models/a"}) {
    EXPECT_EQ(status_of("GET", path, "sk-secret-1"), 404) << path;
  }
  EXPECT_EQ(status_of("GET", "/model_info", "sk-secret-2"), 200);
  EXPECT_EQ(client.call("GET", "/v1/models", "", bearer("sk-secret-1")).json()["data"].size(), 0u);
  EXPECT_EQ(client.call("GET", "/api/tags", "", bearer("sk-secret-1")).status, 404);
  const Reply refused = ask("sk-secret-1", {{"model", "third"}, {"text", "a"}}, "/generate");
  EXPECT_THAT(error_of(refused)["message"].get<std::string>(),
              HasSubstr("The key of alice may use the models other, third"));
  // A served name that is not the key's, where another one is.
  EXPECT_EQ(ask("sk-secret-2", {{"model", "a"}, {"text", "a"}}, "/generate").status, 404);
  EXPECT_EQ(ask("sk-secret-2", {{"model", "b"}, {"text", "a"}}, "/generate").status, 200);
  const Reply by_default = ask("sk-secret-2", chat_body({{"model", "default"}}));
  EXPECT_EQ(by_default.json()["model"], "b") << "the first that the key may use";
}

TEST_F(KeysTest, SeveralKeysWithoutAnAdminKeyAreWarnedOf) {
  const auto warning = [this] {
    set_log_level(LogLevel::kWarning);
    ::testing::internal::CaptureStderr();
    listen();
    server.reset();
    set_log_level(LogLevel::kError);
    return ::testing::internal::GetCapturedStderr();
  };
  use_keys("sk-secret-1 alice");
  EXPECT_THAT(warning(), Not(HasSubstr("--admin-api-key")));
  options.api_key = "sk-of-all";
  EXPECT_THAT(warning(), HasSubstr("Each of the 2 API keys may steer the server"));
  use_keys("sk-secret-1 alice\nsk-secret-2 bob");
  EXPECT_THAT(warning(), HasSubstr("--admin-api-key"));
  options.admin_api_key = "sk-of-the-admin";
  EXPECT_THAT(warning(), Not(HasSubstr("--admin-api-key")));
}

TEST_F(KeysTest, OneKeysResponsesDoNotEvictAnothers) {
  use_keys("sk-secret-1 alice\nsk-secret-2 bob");
  options.key_storage_share = 0.003;  // three responses
  start();
  HttpClient client(server->port());
  const auto respond = [&client](std::string_view key) {
    return client.call("POST", "/v1/responses", R"({"input": "a"})", bearer(key))
        .json()["id"]
        .get<std::string>();
  };
  const std::string first_of_bob = respond("sk-secret-2");
  const std::string first_of_alice = respond("sk-secret-1");
  for (int i = 0; i < 3; ++i) respond("sk-secret-1");
  EXPECT_EQ(status_of("GET", "/v1/responses/" + first_of_alice, "sk-secret-1"), 404);
  EXPECT_EQ(status_of("GET", "/v1/responses/" + first_of_bob, "sk-secret-2"), 200);
  EXPECT_EQ(status_of("GET", "/v1/responses/" + first_of_bob, "sk-secret-1"), 404);
}

TEST_F(KeysTest, ResponsesInTheBackgroundBeyondTheShareAreRefused) {
  use_keys("sk-secret-1 alice");
  options.key_storage_share = 0.002;  // two responses
  engine->held = true;
  start();
  HttpClient client(server->port());
  const auto respond = [&client] {
    return client.call("POST", "/v1/responses", R"({"input": "a", "background": true})",
                       bearer("sk-secret-1"));
  };
  const std::string first = respond().json()["id"];
  EXPECT_EQ(respond().status, 200);
  const Reply refused = respond();
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(error_of(refused)["code"], "too_many_background_responses");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(status_of("GET", "/v1/responses/" + first, "sk-secret-1"), 200);
  engine->held = false;
  EXPECT_TRUE(eventually([&] { return respond().status == 200; }));
}

TEST_F(KeysTest, OnlyTheAdminKeySteersWhereThereIsOne) {
  options.api_key = "user-key";
  options.admin_api_key = "admin-key";
  start();
  for (const char* path : {"/flush_cache", "/pause_generation", "/continue_generation"}) {
    EXPECT_EQ(status_of("POST", path, ""), 401) << path;
    EXPECT_EQ(status_of("POST", path, "wrong"), 401) << path;
    EXPECT_EQ(status_of("POST", path, "user-key"), 403) << path;
    EXPECT_EQ(status_of("POST", path, "admin-key"), 200) << path;
  }
  EXPECT_EQ(status_of("GET", "/get_server_info", "user-key"), 403);
  EXPECT_EQ(status_of("GET", "/get_server_info", "admin-key"), 200);
  EXPECT_EQ(status_of("GET", "/v1/models", "admin-key"), 200);
  EXPECT_EQ(ask("user-key", {{"rid", "mine"}}, "/abort_request").status, 200);
  const Reply refused = ask("user-key", {{"abort_all", true}}, "/abort_request");
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(error_of(refused)["code"], "admin_key_required");
  EXPECT_EQ(ask("admin-key", {{"abort_all", true}}, "/abort_request").status, 200);
}

class AbortTest : public KeysTest {
 protected:
  AbortTest() {
    use_keys("sk-secret-1 alice\nsk-secret-2 bob");
    options.admin_api_key = "admin-key";
    engine->held = true;
  }

  static void send_chat(HttpClient& client, std::string_view key, std::string_view rid) {
    client.send_request("POST", "/v1/chat/completions", chat_body({{"rid", rid}}).dump(),
                        bearer(key));
  }

  [[nodiscard]] Reply abort(std::string_view key, std::string_view rid) const {
    return ask(key, {{"rid", rid}}, "/abort_request");
  }

  static std::string finish_of_chat(HttpClient& client) {
    const Json answer = client.read_reply().json();
    return answer["choices"][0]["finish_reason"].get<std::string>();
  }
};

TEST_F(AbortTest, AKeyEndsItsOwnRequestsAndTheAdminKeyEveryones) {
  start();
  HttpClient first(server->port());
  HttpClient second(server->port());
  send_chat(first, "sk-secret-1", "one");
  send_chat(second, "sk-secret-1", "two");
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 2; }));
  const Reply foreign = abort("sk-secret-2", "one");
  const Reply unknown = abort("sk-secret-2", "none");
  EXPECT_EQ(foreign.status, 200);
  EXPECT_EQ(foreign.status, unknown.status);
  EXPECT_EQ(foreign.body, unknown.body) << "nothing tells whose ids there are";
  EXPECT_EQ(engine->num_cancels(), 0);
  EXPECT_EQ(abort("sk-secret-1", "one").status, 200);
  EXPECT_EQ(finish_of_chat(first), "abort");
  EXPECT_EQ(abort("admin-key", "two").status, 200);
  EXPECT_EQ(finish_of_chat(second), "abort");
}

TEST_F(AbortTest, AnIdIsTakenForItsHolderAlone) {
  start();
  HttpClient alices(server->port());
  HttpClient bobs(server->port());
  send_chat(alices, "sk-secret-1", "one");
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  send_chat(bobs, "sk-secret-2", "one");
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 2; }));
  EXPECT_EQ(ask("sk-secret-1", chat_body({{"rid", "one"}})).status, 400);
  EXPECT_EQ(abort("sk-secret-2", "one").status, 200);
  EXPECT_EQ(finish_of_chat(bobs), "abort");
  engine->held = false;
  EXPECT_EQ(finish_of_chat(alices), "stop");
}

TEST_F(AbortTest, ARequestThatIsNotReadYetIsItsHoldersToo) {
  codec_gate->closed = true;
  start();
  HttpClient alices(server->port());
  HttpClient bobs(server->port());
  send_chat(alices, "sk-secret-1", "one");
  send_chat(bobs, "sk-secret-2", "one");
  ASSERT_TRUE(eventually([this] { return codec_gate->num_waiting == 2; }));
  EXPECT_EQ(abort("sk-secret-2", "one").status, 200);
  codec_gate->closed = false;
  EXPECT_EQ(finish_of_chat(bobs), "abort");
  engine->held = false;
  EXPECT_EQ(finish_of_chat(alices), "stop");
}

TEST_F(KeysTest, AnAdminKeyAloneLeavesTheOtherRoutesOpen) {
  options.admin_api_key = "admin-key";
  start();
  EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 200);
  EXPECT_EQ(post("/flush_cache", Json::object()).status, 403);
}

TEST_F(KeysTest, TheFileIsReadAgainAndAWrongOneChangesNothing) {
  const std::string path = ::testing::TempDir() + "keys_test_keys.txt";
  const auto write = [&path](std::string_view text) { std::ofstream(path) << text; };
  write("sk-secret-1 alice\n");
  options.api_keys_file = path;
  options.api_keys = read_api_keys(path).value();
  start();
  EXPECT_TRUE(server->reads_keys_again());
  EXPECT_EQ(ask("sk-secret-1").status, 200);
  write("sk-secret-2 alice\n");
  ASSERT_TRUE(server->reload_keys().ok());
  EXPECT_TRUE(eventually([this] { return ask("sk-secret-2").status == 200; }));
  EXPECT_EQ(ask("sk-secret-1").status, 401);
  write("short alice\n");
  const Status status = server->reload_keys();
  EXPECT_THAT(status.message(), HasSubstr("line 1"));
  EXPECT_EQ(ask("sk-secret-2").status, 200);
}

TEST_F(KeysTest, TenantsThatAreIsolatedShareNothing) {
  use_keys("sk-secret-1 a\nsk-secret-2 b");
  options.isolate_tenants = true;
  start();
  EXPECT_EQ(ask("sk-secret-1").status, 200);
  EXPECT_EQ(ask("sk-secret-2").status, 200);
  EXPECT_EQ(ask("sk-secret-1", chat_body({{"cache_salt", "x"}})).status, 200);
  EXPECT_EQ(ask("sk-secret-1").status, 200);
  const std::vector<Request> requests = engine->submitted();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_NE(requests[0].cache_namespace, requests[1].cache_namespace);
  EXPECT_NE(requests[0].cache_namespace, requests[2].cache_namespace);
  EXPECT_EQ(requests[0].cache_namespace, requests[3].cache_namespace);
}

TEST_F(KeysTest, ErrorsHaveTheFormThatTheOperatorChose) {
  options.error_style = ErrorStyle::kOpenAi;
  start();
  const Json nested = post("/v1/chat/completions", Json::object()).json();
  EXPECT_EQ(nested.size(), 1u);
  EXPECT_EQ(nested["error"]["code"], "missing_required_parameter");
}

TEST_F(KeysTest, FlatErrorsHaveNothingNested) {
  options.error_style = ErrorStyle::kFlat;
  start();
  const Json flat = post("/v1/chat/completions", Json::object()).json();
  EXPECT_FALSE(flat.contains("error"));
  EXPECT_EQ(flat["object"], "error");
  EXPECT_EQ(flat["code"], 400);
  EXPECT_EQ(flat["param"], "messages");
}

TEST_F(KeysTest, AFullQueueCanBeTooManyRequests) {
  options.overload_status = 429;
  engine->set_refuse([](const Request&) { return resource_exhausted("queue_full: no room"); });
  start();
  const Reply reply = post("/v1/chat/completions", chat_body());
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(error_of(reply)["code"], "queue_full");
  EXPECT_TRUE(reply.headers.contains("retry-after"));
}

TEST_F(KeysTest, ThePrefixOfAProxyIsTakenOff) {
  options.root_path = "/llm";
  start();
  EXPECT_EQ(get("/llm/v1/models").status, 200);
  EXPECT_EQ(get("/v1/models").status, 200);
  EXPECT_EQ(get("/llmv1/models").status, 404);
  EXPECT_EQ(get("/llm").status, get("/").status);
}

TEST_F(KeysTest, OnlyOriginsThatMayAskAreNamed) {
  options.cors = {.origins = {"https://good.example"}, .headers = {"authorization"}};
  start();
  HttpClient client(server->port());
  for (const char* origin : {"https://good.example", "https://GOOD.example:443"}) {
    const Reply good = client.call("GET", "/health", "", fmt::format("Origin: {}\r\n", origin));
    EXPECT_EQ(good.headers.at("access-control-allow-origin"), origin);
  }
  const Reply bad = client.call("GET", "/health", "", "Origin: https://bad.example\r\n");
  EXPECT_FALSE(bad.headers.contains("access-control-allow-origin"));
  const Reply preflight = client.call("OPTIONS", "/v1/models", "",
                                      "Origin: https://good.example\r\n"
                                      "Access-Control-Request-Headers: x-other\r\n");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization");
}

TEST_F(KeysTest, BeforeAShutdownProbesAreRefusedAndRequestsTaken) {
  start();
  EXPECT_EQ(get("/readyz").status, 200);
  server->announce_shutdown(0);
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/readyz").json()["status"], "draining");
  EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 200);
}

}  // namespace
}  // namespace heddle::server
