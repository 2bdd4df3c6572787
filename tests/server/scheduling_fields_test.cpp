// SPDX-License-Identifier: Apache-2.0
// Fields that say when requests run and with which others they share the cache, and the answers
// about it.
#include <future>

#include "server/call/call_fields.h"
#include "server/http/caller.h"
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SchedulingFieldsTest : public ServerTest {
 protected:
  // Every API with a prompt of its own.
  static Json body_of(std::string_view path, const Json& extra) {
    Json body = path == "/v1/chat/completions" ? chat_body()
                : path == "/v1/completions"    ? Json{{"prompt", "p"}}
                                               : Json{{"text", "p"}};
    body.update(extra);
    return body;
  }

  static constexpr std::string_view kPaths[] = {"/v1/chat/completions", "/v1/completions",
                                                "/generate"};
};

TEST_F(SchedulingFieldsTest, ReachTheEngineFromEveryApi) {
  start();
  for (const std::string_view path : kPaths) {
    const Reply reply = post(path, body_of(path, {{"priority", -3},
                                                  {"user", "ann"},
                                                  {"routing_key", "r"},
                                                  {"ttft_slo_ms", 250},
                                                  {"deadline_ms", 1500.5},
                                                  {"cache_salt", "s"},
                                                  {"extra_key", "e"}}));
    ASSERT_EQ(reply.status, 200) << path << reply.body;
    const Request request = engine->submitted().back();
    EXPECT_EQ(request.priority, -3);
    EXPECT_EQ(request.tenant, "ann");
    EXPECT_EQ(request.routing_key, "r");
    EXPECT_DOUBLE_EQ(request.ttft_slo_seconds, 0.25);
    EXPECT_DOUBLE_EQ(request.deadline_seconds, 1.5005);
    EXPECT_EQ(request.cache_namespace, cache_namespace("s", "e"));
  }
}

TEST_F(SchedulingFieldsTest, ADeadlineCountsFromTheArrivalNotFromTheEngine) {
  codec_gate->closed = true;
  start();
  HttpClient client(server->port());
  const auto sent = std::chrono::steady_clock::now();
  client.send_request("POST", "/v1/completions", R"({"prompt": "p", "deadline_ms": 1000})");
  ASSERT_TRUE(eventually([this] { return codec_gate->num_waiting == 1; }));
  const auto reached_the_codec = std::chrono::steady_clock::now();
  const auto opened = std::chrono::steady_clock::now();
  codec_gate->closed = false;
  ASSERT_EQ(client.read_reply().status, 200);
  const auto answered = std::chrono::steady_clock::now();
  const Request request = engine->submitted().back();
  const auto to_seconds = [](auto duration) {
    return std::chrono::duration<double>(duration).count();
  };
  EXPECT_GE(request.waited_seconds, to_seconds(opened - reached_the_codec));
  EXPECT_LE(request.waited_seconds, to_seconds(answered - sent));
  EXPECT_EQ(request.deadline_seconds, 1) << "as it was asked for: errors say it";
}

TEST_F(SchedulingFieldsTest, AreNothingByDefault) {
  start();
  for (const std::string_view path : kPaths) {
    ASSERT_EQ(post(path, body_of(path, {{"priority", nullptr}})).status, 200);
    const Request request = engine->submitted().back();
    EXPECT_EQ(request.priority, std::nullopt);
    EXPECT_EQ(request.tenant, "");
    EXPECT_EQ(request.deadline_seconds, 0);
    EXPECT_EQ(request.cache_namespace, "");
  }
}

TEST_F(SchedulingFieldsTest, ThatAreWrongAreNamed) {
  start();
  for (const std::string_view path : kPaths) {
    for (const Json& extra :
         {Json{{"priority", 1.5}}, Json{{"priority", "high"}}, Json{{"ttft_slo_ms", 0}},
          Json{{"deadline_ms", -1}}, Json{{"cache_salt", 5}},
          Json{{"extra_key", std::string(kMaxKeyBytes + 1, 'x')}}, Json{{"routing_key", true}},
          Json{{"user", Json::array({"a"})}}}) {
      const Reply reply = post(path, body_of(path, extra));
      EXPECT_EQ(reply.status, 400) << path << extra;
      EXPECT_EQ(error_of(reply)["param"], extra.begin().key()) << reply.body;
    }
  }
  EXPECT_THAT(engine->submitted(), IsEmpty());
}

TEST_F(SchedulingFieldsTest, OfABatchMayBeListed) {
  start();
  const Json body = {{"text", {"a", "b"}},
                     {"extra_key", {"x", "y"}},
                     {"cache_salt", "s"},
                     {"priority", {1, 2}},
                     {"user", "ann"}};
  ASSERT_EQ(post("/generate", body).status, 200);
  const auto requests = engine->submitted();
  EXPECT_EQ(requests[0].cache_namespace, cache_namespace("s", "x"));
  EXPECT_EQ(requests[1].cache_namespace, cache_namespace("s", "y"));
  EXPECT_EQ(requests[1].priority, 2);
  EXPECT_EQ(requests[1].tenant, "ann");
  EXPECT_EQ(post("/generate", {{"text", "a"}, {"tenant", "bob"}}).status, 200);
  EXPECT_EQ(engine->submitted().back().tenant, "bob");
  EXPECT_EQ(error_of(post("/generate", {{"text", "a"}, {"tenant", 7}}))["param"], "tenant");
  const Reply reply = post("/generate", {{"text", {"a", "b"}}, {"extra_key", {"x"}}});
  EXPECT_EQ(error_of(reply)["param"], "extra_key");
}

TEST_F(SchedulingFieldsTest, HeadersStandInForTheBody) {
  start();
  const auto send = [this](const Json& extra, std::string_view headers) {
    return connect().call("POST", "/v1/chat/completions", chat_body(extra).dump(), headers);
  };
  ASSERT_EQ(send(Json::object(), "x-request-timeout-ms: 2000\r\nx-priority: 7\r\n").status, 200);
  EXPECT_DOUBLE_EQ(engine->submitted().back().deadline_seconds, 2);
  EXPECT_EQ(engine->submitted().back().priority, 7);
  // The body's own priority; of two deadlines the shorter.
  ASSERT_EQ(send({{"priority", 1}, {"deadline_ms", 500}},
                 "x-request-timeout-ms: 2000\r\nx-priority: 7\r\n")
                .status,
            200);
  EXPECT_DOUBLE_EQ(engine->submitted().back().deadline_seconds, 0.5);
  EXPECT_EQ(engine->submitted().back().priority, 1);
  ASSERT_EQ(send({{"deadline_ms", 5000}}, "x-request-timeout-ms: 2000\r\n").status, 200);
  EXPECT_DOUBLE_EQ(engine->submitted().back().deadline_seconds, 2);
  for (const char* header : {"x-request-timeout-ms: soon\r\n", "x-request-timeout-ms: 0\r\n",
                             "x-request-timeout-ms: nan\r\n", "x-priority: 1.5\r\n"}) {
    const Reply reply = send(Json::object(), header);
    EXPECT_EQ(reply.status, 400) << header;
    EXPECT_THAT(std::string(header), HasSubstr(error_of(reply)["param"].get<std::string>()));
  }
}

TEST_F(SchedulingFieldsTest, MessagesBeginWhereTheTemplateSaysSo) {
  start();
  ASSERT_EQ(post("/v1/chat/completions", chat_body()).status, 200);
  const Request request = engine->submitted().back();  // "user: Hi|assistant: "
  EXPECT_THAT(request.role_boundaries, ElementsAre(9));
  ASSERT_EQ(post("/v1/completions", {{"prompt", "a|b|c"}}).status, 200);
  EXPECT_THAT(engine->submitted().back().role_boundaries, ElementsAre(2, 4));
}

TEST_F(SchedulingFieldsTest, TheAnswerTellsWhatWasCached) {
  engine->script = [](const Request&) {
    auto events = answer_events({"a"});
    for (RequestEvent& event : events) {
      event.cached_tokens = 64;
      event.cache = {.reused_tokens = 64,
                     .matched_tokens = 180,
                     .deferred_seconds = 0.25,
                     .lost = {.eviction = 64, .missing_state = 40, .grid = 11, .last_token = 1}};
    }
    return events;
  };
  start();
  EXPECT_EQ(post("/generate", {{"text", "p"}}).json()["meta_info"]["cached_tokens_details"].dump(),
            R"({"device":64,"matched_tokens":180,"exact_repeat":false,"deferred_ms":250.0,)"
            R"("lost_tokens":{"eviction":64,"missing_state":40,"grid":11,"last_token":1}})");
  const Json brief = post("/v1/chat/completions", chat_body()).json();
  EXPECT_EQ(brief["usage"]["prompt_tokens_details"].dump(), R"({"cached_tokens":64})");
  for (const std::string_view path : {kPaths[0], kPaths[1]}) {
    const Json full = post(path, body_of(path, {{"return_cached_tokens_details", true}})).json();
    EXPECT_EQ(full["usage"]["prompt_tokens_details"].dump(),
              R"({"cached_tokens":64,"matched_tokens":180,"exact_repeat":false,)"
              R"("lost_tokens":{"eviction":64,"missing_state":40,"grid":11,"last_token":1}})");
  }
}

TEST_F(SchedulingFieldsTest, EachLimitHasItsOwnError) {
  start();
  const std::tuple<Status, int, const char*> cases[] = {
      {timed_out("queue_timeout: the request waited longer than 5 s"), 503, "queue_timeout"},
      {timed_out("running_timeout: the request ran longer than 5 s"), 503, "running_timeout"},
      {timed_out("deadline_exceeded: within 5 s"), 503, "deadline_exceeded"},
      {timed_out("too late"), 503, "deadline_exceeded"},
      {resource_exhausted("displaced: a more urgent request"), 503, "displaced"},
      {resource_exhausted("tenant_queue_full: tenant \"a\" has 2"), 429, "tenant_queue_full"},
      {resource_exhausted("the queue is full: 5 wait"), 503, "queue_full"},
      {resource_exhausted("displacedness is no limit"), 503, "queue_full"}};
  for (const auto& [status, http_status, code] : cases) {
    engine->set_refuse([&](const Request&) { return status; });
    const Reply reply = post("/v1/chat/completions", chat_body());
    EXPECT_EQ(reply.status, http_status) << status.message();
    EXPECT_EQ(error_of(reply)["code"], code);
    EXPECT_TRUE(reply.headers.contains("retry-after"));
    EXPECT_THAT(error_of(reply)["message"].get<std::string>(),
                ::testing::Not(::testing::StartsWith(std::string(code) + ":")));
  }
}

TEST_F(SchedulingFieldsTest, ARequestThatTimesOutHalfWayKeepsItsText) {
  engine->script = [](const Request&) {
    return answer_events({"Hel", "lo"},
                         finish_of(FinishReason::kAbort, timed_out("running_timeout: too long")));
  };
  start();
  const Reply chat = post("/v1/chat/completions", chat_body());
  EXPECT_EQ(chat.status, 200);
  EXPECT_EQ(chat.json()["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(chat.json()["choices"][0]["finish_reason"], "abort");
  const Reply completion = post("/v1/completions", {{"prompt", "p"}});
  EXPECT_EQ(completion.status, 200);
  EXPECT_EQ(completion.json()["choices"][0]["text"], "Hello");
  EXPECT_EQ(completion.json()["choices"][0]["finish_reason"], "abort");
  const Reply native = post("/generate", {{"text", "p"}});
  EXPECT_EQ(native.status, 200);
  EXPECT_EQ(native.json()["text"], "Hello");
  EXPECT_EQ(native.json()["meta_info"]["finish_reason"].dump(),
            R"({"type":"abort","message":"running_timeout: too long","status_code":503,)"
            R"("err_type":"ServiceUnavailable"})");
}

TEST_F(SchedulingFieldsTest, AStreamThatRunsOutOfTimeEndsLikeOthersDo) {
  engine->script = [](const Request&) {
    return answer_events({"Hel", "lo"},
                         finish_of(FinishReason::kAbort, timed_out("deadline_exceeded: late")));
  };
  start();
  const auto last_chunk = [&](const char* path, Json body) {
    body["stream"] = true;
    const std::vector<std::string> events = post(path, body).events();
    EXPECT_GE(events.size(), 3u);
    EXPECT_EQ(events.back(), "[DONE]");
    return Json::parse(events.end()[-2]);
  };
  EXPECT_EQ(last_chunk("/v1/chat/completions", chat_body())["choices"][0]["finish_reason"],
            "abort");
  EXPECT_EQ(last_chunk("/v1/completions", {{"prompt", "p"}})["choices"][0]["finish_reason"],
            "abort");
  const Json native = last_chunk("/generate", {{"text", "p"}});
  EXPECT_EQ(native["text"], "Hello");
  EXPECT_EQ(native["meta_info"]["finish_reason"]["type"], "abort");
}

TEST_F(SchedulingFieldsTest, ARequestThatTimesOutDuringShutdownKeepsItsText) {
  engine->held = true;
  engine->script = [](const Request&) {
    return answer_events({"Hello"},
                         finish_of(FinishReason::kAbort, timed_out("deadline_exceeded: late")));
  };
  start();
  HttpClient client(server->port());
  client.send_request("POST", "/v1/chat/completions", chat_body().dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  auto aborted = std::async(std::launch::async, [this] { return server->shutdown(); });
  ASSERT_TRUE(eventually([this] { return get("/health").status == 503; }));
  engine->held = false;
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json()["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(aborted.get(), 0);
}

TEST_F(SchedulingFieldsTest, ALimitMetBeforeTheFirstTokenIsAnError) {
  engine->script = [](const Request&) {
    return answer_events({}, finish_of(FinishReason::kError, timed_out("running_timeout: late")));
  };
  start();
  for (const bool stream : {false, true}) {
    const Reply reply = post("/v1/chat/completions", chat_body({{"stream", stream}}));
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(error_of(reply)["code"], "running_timeout");
  }
}

TEST_F(SchedulingFieldsTest, AnErrorHalfWayIsTheLastEventOfTheStream) {
  engine->script = [](const Request&) {
    auto events = answer_events({"a"});
    events[1].finish = finish_of(FinishReason::kError, internal_error("broken"));
    return events;
  };
  start();
  const auto events = post("/v1/chat/completions", chat_body({{"stream", true}})).events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(Json::parse(events.end()[-2])["error"]["code"], "internal_error");
}

TEST(CacheNamespaceTest, DifferentPairsNeverMeet) {
  const std::string_view texts[] = {"", "a", "b", "ab", "1:a", "1", ":", "0:", "2:ab", "0:a"};
  std::map<std::string, std::pair<std::string_view, std::string_view>> seen;
  for (const auto salt : texts) {
    for (const auto extra : texts) {
      const auto [place, fresh] =
          seen.emplace(cache_namespace(salt, extra), std::pair(salt, extra));
      EXPECT_TRUE(fresh) << salt << "|" << extra << " and " << place->second.first << "|"
                         << place->second.second;
    }
  }
  EXPECT_EQ(cache_namespace("", ""), "");
}

TEST(FairKeyTest, SaysWhoseRequestItIs) {
  HttpRequest head;
  head.headers = {{"authorization", "Bearer secret"}, {"x-team", "blue"}};
  const auto tenant = [&](std::string_view key) {
    return tenant_of(parse_fair_key(key).value(), head, "ann");
  };
  EXPECT_EQ(tenant("none"), "");
  EXPECT_EQ(tenant("user"), "ann");
  EXPECT_EQ(tenant("header:X-Team"), "blue");
  const std::string by_key = tenant("api-key");
  EXPECT_THAT(by_key, ::testing::StartsWith("key-"));
  EXPECT_THAT(by_key, ::testing::Not(HasSubstr("secret")));
  head.headers[0].second = "Bearer other";
  EXPECT_NE(tenant("api-key"), by_key);
  head.headers = {{"x-api-key", "secret"}};
  EXPECT_EQ(tenant("api-key"), by_key);
  head.headers.clear();
  EXPECT_EQ(tenant("api-key"), "");
  for (const char* wrong : {"", "key", "header:", "header", "header:a b", "header:a:b"}) {
    EXPECT_EQ(parse_fair_key(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace heddle::server
