// SPDX-License-Identifier: Apache-2.0
// Clients that leave, read slowly or come in crowds; engines that refuse and fail.
#include <atomic>
#include <fstream>
#include <sstream>

#include "core/compiler.h"
#include "server/call/early_aborts.h"
#include "server/call_reader.h"
#include "server/server_fixture.h"
#include "support/test_data.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class FailureTest : public ServerTest {
 protected:
  static std::string file_text(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  // An answer without end: however slow the server is, the engine is not done before it.
  static FakeEngine::Script endless(std::string text) {
    return [text = std::move(text)](const Request&) {
      auto events = answer_events({text});
      events.pop_back();
      return events;
    };
  }
};

TEST_F(FailureTest, LeavingWhileAnAnswerIsMadeCancelsIt) {
  engine->script = endless("word ");
  engine->step_microseconds = 1000;
  start();
  HttpClient client(server->port());
  client.send_request("POST", "/v1/chat/completions", chat_body({{"rid", "gone"}}).dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  client.close();
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
  EXPECT_TRUE(engine->cancelled().contains("gone"));
}

TEST_F(FailureTest, LeavingWhileQueuedCancelsEveryChoice) {
  engine->held = true;
  start();
  HttpClient client(server->port());
  client.send_request("POST", "/v1/chat/completions", chat_body({{"n", 4}}).dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 4; }));
  client.reset();
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
}

TEST_F(FailureTest, AResetBehindALongTailCancelsToo) {
  engine->held = true;
  start();
  HttpClient client(server->port());
  client.send_request("POST", "/v1/chat/completions", chat_body({{"rid", "tail"}}).dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  client.send(std::string(100 << 10, 'x'));  // more than the server reads ahead
  client.reset();
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
  EXPECT_TRUE(engine->cancelled().contains("tail"));
}

TEST_F(FailureTest, AClientThatClosesItsSendingSideIsGone) {
  engine->held = true;
  start();
  HttpClient plain(server->port());
  plain.send_request("POST", "/v1/chat/completions", chat_body().dump());
  HttpClient streaming(server->port());
  streaming.send_request("POST", "/v1/chat/completions", chat_body({{"stream", true}}).dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 2; }));
  plain.shut_down_sending();
  streaming.shut_down_sending();
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
  EXPECT_EQ(plain.read_reply().status, 0);
  EXPECT_EQ(streaming.read_reply().status, 0);
}

TEST_F(FailureTest, ACompleteAnswerIsSentToAClientThatHasClosedItsSendingSide) {
  start();
  HttpClient client(server->port());
  client.send_request("GET", "/health");
  client.shut_down_sending();
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(FailureTest, LeavingAStreamCancelsIt) {
  engine->script = endless("word ");
  engine->step_microseconds = 1000;
  start();
  for (const bool hard : {false, true}) {
    HttpClient client(server->port());
    client.send_request("POST", "/v1/chat/completions", chat_body({{"stream", true}}).dump());
    ASSERT_TRUE(client.read_until("word "));
    hard ? client.reset() : client.close();
    EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
  }
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(FailureTest, AnEventLargerThanTheOutboxIsSent) {
  options.http.max_outbox_bytes = 1000;
  const std::string large(3 << 20, 'x');
  engine->script = [large](const Request&) { return answer_events({large, "end"}); };
  start();
  const Reply reply = post("/v1/chat/completions", chat_body({{"stream", true}}));
  EXPECT_TRUE(reply.complete);
  const auto events = reply.events();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(Json::parse(events[1])["choices"][0]["delta"]["content"], large);
  EXPECT_EQ(events.back(), "[DONE]");
}

// However fast the engine is: its events wait until the client has read those before.
TEST_F(FailureTest, AReaderThatKeepsReadingGetsEveryEvent) {
  options.http.max_outbox_bytes = 1000;
  constexpr int kEvents = 3000;
  engine->script = [](const Request&) {
    std::vector<std::string> texts;
    for (int i = 0; i < kEvents; ++i)
      texts.push_back(fmt::format("{} {}", i, std::string(999, 'x')));
    return answer_events(texts);
  };
  start();
  HttpClient reader(server->port(), /*receive_buffer_bytes=*/4096);
  reader.send_request("POST", "/v1/completions",
                      Json{{"prompt", "x"}, {"stream", true}, {"max_tokens", 10000}}.dump());
  ASSERT_TRUE(eventually([this] {
    return !engine->submitted().empty() && engine->num_live() == 0;
  })) << "the engine is done while the client has read nothing";
  const Reply reply = reader.read_reply();
  EXPECT_TRUE(reply.complete);
  const auto events = reply.events();
  ASSERT_EQ(events.size(), kEvents + 2u);
  for (int i = 0; i < kEvents; ++i) {
    EXPECT_THAT(
        Json::parse(events[static_cast<size_t>(i)])["choices"][0]["text"].get<std::string>(),
        ::testing::StartsWith(fmt::format("{} ", i)));
  }
}

TEST_F(FailureTest, AnErrorComesAfterTheEventsThatWaited) {
  options.http.max_outbox_bytes = 1000;
  engine->script = [](const Request&) {
    auto events = answer_events(std::vector<std::string>(10000, std::string(1000, 'x')));
    events.back().finish = finish_of(FinishReason::kError, device_lost("boom"));
    return events;
  };
  set_log_level(LogLevel::kOff);
  start();
  HttpClient reader(server->port(), /*receive_buffer_bytes=*/4096);
  reader.send_request("POST", "/v1/completions",
                      Json{{"prompt", "x"}, {"stream", true}, {"max_tokens", 20000}}.dump());
  ASSERT_TRUE(
      eventually([this] { return !engine->submitted().empty() && engine->num_live() == 0; }));
  const Reply reply = reader.read_reply();
  EXPECT_TRUE(reply.complete);
  const auto events = reply.events();
  ASSERT_EQ(events.size(), 10002u);
  EXPECT_TRUE(Json::parse(events[10000]).contains("error"));
}

TEST_F(FailureTest, AReaderThatStopsIsCutOffInTheEnd) {
  options.http.write_timeout_seconds = 0.3;
  engine->script = endless(std::string(10000, 'x'));
  engine->step_microseconds = 2000;
  start();
  HttpClient stopped(server->port(), /*receive_buffer_bytes=*/4096);
  stopped.send_request("POST", "/v1/chat/completions",
                       chat_body({{"stream", true}, {"rid", "s"}}).dump());
  EXPECT_TRUE(eventually([this] { return engine->cancelled().contains("s"); }));
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
}

// An engine that is faster than the I/O thread must not keep it from its sockets and clocks.
TEST_F(FailureTest, AFloodOfEventsDoesNotHoldUpTheProbes) {
  engine->script = endless("word ");
  engine->held = true;                     // until all are there
  options.http.write_timeout_seconds = 1;  // no client reads: bounds the events that wait
  start();
  std::vector<std::unique_ptr<HttpClient>> readers;
  for (int i = 0; i < 32; ++i) {
    readers.push_back(std::make_unique<HttpClient>(server->port()));
    readers.back()->send_request("POST", "/v1/completions",
                                 Json{{"prompt", "x"}, {"stream", true}, {"n", 8}}.dump());
  }
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 32 * 8; }));
  engine->held = false;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get("/health").status, 200);
  for (const auto& reader : readers) reader->reset();
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
}

TEST_F(FailureTest, AFullQueueIsRefusedInTheGoldenWords) {
  engine->set_refuse([](const Request&) {
    return resource_exhausted("The request queue is full (128 waiting). Retry later.");
  });
  start();
  const Reply reply = post("/v1/chat/completions", chat_body());
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.headers.at("retry-after"), "4");
  EXPECT_EQ(reply.body,
            R"({"error":{"message":"The request queue is full (128 waiting). Retry later.",)"
            R"("type":"overloaded_error","param":null,"code":"queue_full"},"object":"error",)"
            R"("message":"The request queue is full (128 waiting). Retry later.",)"
            R"("type":"ServiceUnavailable","param":null,"code":503})");
}

TEST_F(FailureTest, RetryAfterIsTheTimeThatThePromptsInTheQueueTake) {
  engine->set_refuse([](const Request&) { return resource_exhausted("full"); });
  start();
  const auto seconds_with = [this](int64_t waiting_tokens, double rate) {
    engine->waiting_tokens = waiting_tokens;
    engine->prefill_tokens_per_second = rate;
    return post("/v1/chat/completions", chat_body()).headers.at("retry-after");
  };
  EXPECT_EQ(seconds_with(0, 1000), "1");
  EXPECT_EQ(seconds_with(6500, 1000), "7");
  EXPECT_EQ(seconds_with(1000000, 1000), "60");
  EXPECT_EQ(seconds_with(1000, 0), "4") << "the rate is not known";
}

TEST_F(FailureTest, FailuresOfOursHaveTheirOwnCodes) {
  Status failure;
  engine->script = [&failure](const Request&) {
    return answer_events({}, finish_of(FinishReason::kError, failure));
  };
  start();
  const auto code_of = [&](const char* message) {
    failure = internal_error(message);
    const Reply reply = post("/v1/chat/completions", chat_body());
    EXPECT_EQ(reply.status, 500);
    EXPECT_THAT(reply.body, ::testing::Not(::testing::HasSubstr(message)));
    return error_of(reply)["code"];
  };
  EXPECT_EQ(code_of("numerical error: a logit for position 3 is infinite"), "numerical_error");
  EXPECT_EQ(code_of("a step threw: std::bad_alloc"), "out_of_memory");
  EXPECT_EQ(code_of("secret"), "internal_error");
}

TEST_F(FailureTest, WhenOneChoiceIsRefusedTheOthersAreCancelled) {
  engine->held = true;
  engine->set_refuse([](const Request& request) {
    return request.choice_index == 2 ? resource_exhausted("full") : ok_status();
  });
  start();
  EXPECT_EQ(post("/v1/chat/completions", chat_body({{"n", 4}, {"rid", "r"}})).status, 503);
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
  engine->held = false;
  engine->set_refuse(nullptr);
  EXPECT_EQ(post("/v1/chat/completions", chat_body({{"rid", "r"}})).status, 200);  // free again
}

TEST_F(FailureTest, AnErrorBeforeTheFirstByteIsAnOrdinaryResponse) {
  engine->script = [](const Request&) {
    RequestEvent event;
    event.finish = finish_of(FinishReason::kError, internal_error("secret detail"));
    return std::vector<RequestEvent>{event};
  };
  set_log_level(LogLevel::kOff);
  start();
  const Reply reply = post("/v1/chat/completions", chat_body({{"stream", true}, {"rid", "r1"}}));
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(error_of(reply)["code"], "internal_error");
  EXPECT_THAT(reply.body, ::testing::Not(HasSubstr("secret")));
  EXPECT_THAT(reply.body, HasSubstr("r1"));
}

TEST_F(FailureTest, AnErrorInAStreamIsItsLastEvent) {
  engine->script = [](const Request&) {
    auto events = answer_events({"a"});
    events[1].finish = finish_of(FinishReason::kError, device_lost("boom"));
    return events;
  };
  set_log_level(LogLevel::kOff);
  start();
  const auto events = post("/v1/chat/completions", chat_body({{"stream", true}})).events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(Json::parse(events[2])["error"]["type"], "server_error");
  EXPECT_EQ(events[3], "[DONE]");
}

TEST_F(FailureTest, ALiveIdCannotBeTakenTwice) {
  engine->held = true;
  start();
  HttpClient first(server->port());
  first.send_request("POST", "/v1/chat/completions", chat_body({{"rid", "same"}}).dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  const Reply second = post("/v1/chat/completions", chat_body({{"rid", "same"}}));
  EXPECT_EQ(second.status, 400);
  EXPECT_EQ(error_of(second)["param"], "rid");
  HttpClient by_header(server->port());
  by_header.send_request("POST", "/v1/chat/completions", chat_body().dump(),
                         "x-request-id: same\r\n");
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 2; }));
  engine->held = false;
  EXPECT_EQ(first.read_reply().status, 200);
  EXPECT_EQ(by_header.read_reply().status, 200);
}

TEST_F(FailureTest, EveryIdOfABatchIsItsOwnWhileItRuns) {
  engine->held = true;
  start();
  EXPECT_EQ(error_of(post("/generate", {{"text", {"a", "b"}}, {"rid", {"q", "q"}}}))["param"],
            "rid");
  HttpClient batch(server->port());
  batch.send_request("POST", "/generate", Json{{"text", {"a", "b"}}, {"rid", {"x", "y"}}}.dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 2; }));
  EXPECT_EQ(post("/generate", {{"text", "a"}, {"rid", "y"}}).status, 400);
  EXPECT_EQ(post("/generate", {{"text", {"a", "b"}}, {"rid", {"z", "y"}}}).status, 400);
  engine->held = false;
  EXPECT_EQ(batch.read_reply().status, 200);
  EXPECT_EQ(post("/generate", {{"text", "a"}, {"rid", "y"}}).status, 200);  // free again
}

TEST_F(FailureTest, ARequestIsAbortedByItsId) {
  engine->held = true;
  start();
  HttpClient chat(server->port());
  chat.send_request("POST", "/v1/chat/completions", chat_body({{"rid", "c"}, {"n", 2}}).dump());
  HttpClient batch(server->port());
  batch.send_request("POST", "/generate", Json{{"text", {"a", "b"}}, {"rid", "r"}}.dump());
  HttpClient other(server->port());
  other.send_request("POST", "/generate", Json{{"text", "a"}, {"rid", "r_00"}}.dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 5; }));
  EXPECT_EQ(error_of(post("/abort_request", Json::object()))["param"], "rid");
  EXPECT_EQ(error_of(post("/abort_request", {{"rid", 5}}))["code"], "invalid_type");
  EXPECT_EQ(post("/abort_request", {{"rid", "unknown"}}).status, 200);
  EXPECT_EQ(post("/abort_request", {{"rid", "r_1"}}).status, 200);
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 4; }));
  EXPECT_EQ(post("/abort_request", {{"rid", "c"}}).status, 200);
  const Json answer = chat.read_reply().json();
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "abort");
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "abort");
  EXPECT_EQ(engine->num_live(), 2u);
  EXPECT_EQ(post("/abort_request", {{"abort_all", true}}).status, 200);
  const Json both = batch.read_reply().json();
  EXPECT_EQ(both[0]["meta_info"]["finish_reason"]["type"], "abort");
  EXPECT_EQ(both[1]["meta_info"]["finish_reason"]["type"], "abort");
  EXPECT_EQ(other.read_reply().json()["meta_info"]["finish_reason"]["type"], "abort");
}

TEST_F(FailureTest, EveryIdThatAClientGetsCanBeAborted) {
  engine->held = true;
  start();
  const auto finish_of_answer = [](const Json& answer) {
    return answer["meta_info"]["finish_reason"]["type"].get<std::string>();
  };
  HttpClient several(server->port());
  several.send_request("POST", "/generate",
                       Json{{"text", "a"}, {"rid", "two"}, {"sampling_params", {{"n", 2}}}}.dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 2; }));
  EXPECT_EQ(post("/generate", {{"text", "a"}, {"rid", "two_1"}}).status, 400) << "it is live";
  EXPECT_EQ(post("/abort_request", {{"rid", "two_0"}}).status, 200);
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  engine->held = false;
  const Json answer = several.read_reply().json();
  EXPECT_EQ(answer[0]["meta_info"]["id"], "two_0");
  EXPECT_EQ(finish_of_answer(answer[0]), "abort");
  EXPECT_EQ(finish_of_answer(answer[1]), "stop");

  engine->held = true;  // a batch that the header names, and one more by the same name
  HttpClient batch(server->port());
  batch.send_request("POST", "/generate",
                     Json{{"text", {"a", "b"}}, {"sampling_params", {{"n", 2}}}}.dump(),
                     "x-request-id: h\r\n");
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 4; }));
  HttpClient same(server->port());
  same.send_request("POST", "/generate", Json{{"text", "a"}}.dump(), "x-request-id: h\r\n");
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 5; }));
  EXPECT_EQ(post("/abort_request", {{"rid", "h_1"}}).status, 200);  // a prompt
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 3; }));
  EXPECT_EQ(post("/abort_request", {{"rid", "h_0_1"}}).status, 200);  // an answer
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 2; }));
  EXPECT_EQ(post("/abort_request", {{"rid", "h"}}).status, 200);  // both calls
  EXPECT_EQ(finish_of_answer(same.read_reply().json()), "abort");
  EXPECT_EQ(finish_of_answer(batch.read_reply().json()[0]), "abort");

  HttpClient unnamed(server->port());  // whose id the server makes up
  engine->script = endless("word ");
  engine->step_microseconds = 1000;
  engine->held = false;
  unnamed.send_request("POST", "/generate", Json{{"text", {"a"}}, {"stream", true}}.dump());
  ASSERT_TRUE(unnamed.read_until("\"finish_reason\""));  // which follows the id
  const std::string& heard = unnamed.pending();
  const size_t id = heard.find("\"id\":\"req-") + 6;
  const std::string rid = heard.substr(id, heard.find('"', id) - id);
  EXPECT_THAT(rid, ::testing::EndsWith("_0"));
  EXPECT_EQ(post("/abort_request", {{"rid", rid}}).status, 200);
  EXPECT_THAT(unnamed.read_reply().events().back(), "[DONE]");
}

TEST_F(FailureTest, AbortingAllAsksOnceForEachRequest) {
  engine->held = true;
  start();
  HttpClient batch(server->port());
  batch.send_request("POST", "/generate",
                     Json{{"text", {"a", "b", "c"}}, {"sampling_params", {{"n", 2}}}}.dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 6; }));
  EXPECT_EQ(post("/abort_request", {{"abort_all", true}}).status, 200);
  EXPECT_EQ(engine->num_cancels(), 6);
  EXPECT_EQ(batch.read_reply().json().size(), 6u);
}

TEST_F(FailureTest, ACallThatWaitsForAWorkerCanBeAborted) {
  engine->held = true;  // nothing ends but what is aborted
  codec_gate->closed = true;
  options.num_workers = 2;
  start();
  const auto generate = [](HttpClient& client, const Json& body) {
    client.send_request("POST", "/generate", body.dump());
  };
  HttpClient first(server->port());
  HttpClient second(server->port());
  generate(first, {{"text", "a"}, {"rid", "first"}});
  generate(second, {{"text", "a"}, {"rid", "second"}});
  ASSERT_TRUE(eventually([this] { return codec_gate->num_waiting == 2; }));
  HttpClient waiting(server->port());
  HttpClient batch(server->port());
  generate(waiting, {{"text", "a"}, {"rid", "waiting"}});
  generate(batch, {{"text", {"a", "b"}}, {"rid", "batch"}});
  EXPECT_EQ(get("/health").status, 200);  // what was sent before has arrived
  for (const char* rid : {"first", "waiting", "batch_1", "later"}) {
    EXPECT_EQ(post("/abort_request", {{"rid", rid}}).status, 200);
  }
  HttpClient later(server->port());
  generate(later, {{"text", "a"}, {"rid", "later"}});
  EXPECT_EQ(get("/health").status, 200);
  codec_gate->closed = false;
  const auto finish = [](const Json& answer) {
    return answer["meta_info"]["finish_reason"]["type"];
  };
  EXPECT_EQ(finish(first.read_reply().json()), "abort");
  EXPECT_EQ(finish(waiting.read_reply().json()), "abort");
  ASSERT_TRUE(eventually([this] { return engine->submitted().size() == 4; }))
      << "of the batch both, for one of them goes on; of those aborted as a whole none";
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 3; }));
  engine->held = false;
  EXPECT_EQ(finish(second.read_reply().json()), "stop");
  EXPECT_EQ(finish(later.read_reply().json()), "stop") << "it came after the abort";
  const Json both = batch.read_reply().json();
  EXPECT_EQ(finish(both[0]), "stop");
  EXPECT_EQ(finish(both[1]), "abort");
}

TEST_F(FailureTest, EncodingEndsWhenTheClientLeaves) {
  codec_gate->closed = codec_gate->cancellable = true;
  start();
  for (const char* path : {"/v1/completions", "/tokenize"}) {
    const int num_cancelled = codec_gate->num_cancelled;
    HttpClient client(server->port());
    client.send_request("POST", path, R"({"prompt": "p"})");
    ASSERT_TRUE(eventually([this] { return codec_gate->num_waiting == 1; })) << path;
    client.reset();
    EXPECT_TRUE(eventually([&] { return codec_gate->num_cancelled == num_cancelled + 1; })) << path;
  }
  EXPECT_TRUE(engine->submitted().empty());
}

TEST_F(FailureTest, EncodingEndsWhenTheServerStops) {
  codec_gate->closed = codec_gate->cancellable = true;
  start();
  HttpClient completions(server->port());
  completions.send_request("POST", "/v1/completions", R"({"prompt": "p"})");
  HttpClient tokenize(server->port());
  tokenize.send_request("POST", "/tokenize", R"({"prompt": "p"})");
  ASSERT_TRUE(eventually([this] { return codec_gate->num_waiting == 2; }));
  server->shutdown();  // does not wait for the gate, which stays closed
  for (HttpClient* client : {&completions, &tokenize}) {
    const Reply reply = client->read_reply();
    EXPECT_EQ(reply.status, 503);
    EXPECT_EQ(error_of(reply)["code"], "shutting_down");
  }
}

TEST_F(FailureTest, LargeBodiesLeaveAWorkerToSmallOnes) {
  codec_gate->closed = true;
  options.num_workers = 2;
  start();
  const std::string large = R"({"prompt":"abc"})" + std::string(kLargeBodyBytes, ' ');
  HttpClient first(server->port());
  HttpClient second(server->port());
  first.send_request("POST", "/tokenize", large);
  second.send_request("POST", "/tokenize", large);
  ASSERT_TRUE(eventually([this] { return codec_gate->num_waiting == 1; }));
  EXPECT_EQ(post("/generate", {{"input_ids", {1}}}).status, 200);
  EXPECT_EQ(codec_gate->num_waiting, 1);
  codec_gate->closed = false;
  EXPECT_EQ(first.read_reply().json()["count"], 3);
  EXPECT_EQ(second.read_reply().json()["count"], 3);
}

TEST_F(FailureTest, ARunningRequestCanBeAbortedHoweverManyAbortsWait) {
  if (HEDDLE_SANITIZED) GTEST_SKIP() << "so many requests take minutes under a sanitizer";
  engine->held = true;
  codec_gate->closed = true;
  options.num_workers = 1;
  start();
  HttpClient running(server->port());
  running.send_request("POST", "/generate", Json{{"input_ids", {1}}, {"rid", "runs"}}.dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  HttpClient waiting(server->port());
  waiting.send_request("POST", "/generate", Json{{"text", "a"}, {"rid", "waits"}}.dump());
  ASSERT_TRUE(eventually([this] { return codec_gate->num_waiting == 1; }));
  HttpClient aborting(server->port());
  for (size_t i = 0; i < EarlyAborts::kMaxIds;) {
    constexpr size_t kSentAhead = 256;
    for (size_t sent = 0; sent < kSentAhead; ++sent) {
      aborting.send_request("POST", "/abort_request", fmt::format(R"({{"rid":"id{}"}})", i + sent));
    }
    for (size_t read = 0; read < kSentAhead; ++read, ++i) {
      ASSERT_EQ(aborting.read_reply().status, 200);
    }
  }
  EXPECT_EQ(error_of(post("/abort_request", {{"rid", "waits"}}))["code"], "queue_full");
  EXPECT_EQ(post("/abort_request", {{"rid", "runs"}}).status, 200);
  EXPECT_EQ(running.read_reply().json()["meta_info"]["finish_reason"]["type"], "abort");
  codec_gate->closed = false;
  engine->held = false;
  EXPECT_EQ(waiting.read_reply().status, 200);
}

TEST_F(FailureTest, AbortingAllMeansThoseThatWaitForAWorkerToo) {
  engine->held = true;
  codec_gate->closed = true;
  options.num_workers = 1;
  start();
  HttpClient chat(server->port());
  chat.send_request("POST", "/v1/chat/completions", chat_body().dump());
  HttpClient waiting(server->port());
  waiting.send_request("POST", "/v1/chat/completions", chat_body({{"n", 2}}).dump());
  ASSERT_TRUE(eventually([this] { return codec_gate->num_waiting == 1; }));
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(post("/abort_request", {{"abort_all", true}}).status, 200);
  codec_gate->closed = false;
  EXPECT_EQ(chat.read_reply().json()["choices"][0]["finish_reason"], "abort");
  EXPECT_EQ(waiting.read_reply().json()["choices"][1]["finish_reason"], "abort");
  EXPECT_TRUE(engine->submitted().empty()) << "no queue is asked for room for them";
}

TEST_F(FailureTest, ASilentStreamIsKeptAlive) {
  options.http.stream_commit_seconds = 0.1;
  options.http.stream_keepalive_seconds = 0.1;
  engine->held = true;
  start();
  HttpClient client(server->port());
  client.send_request("POST", "/v1/chat/completions", chat_body({{"stream", true}}).dump());
  ASSERT_TRUE(client.read_until(": ping\n\n\r\n8\r\n: ping\n\n"));
  engine->held = false;
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.events().back(), "[DONE]");
}

TEST_F(FailureTest, FiftyStreamsAtOnceAreAllComplete) {
  engine->script = [](const Request& request) {
    std::vector<std::string> words;
    for (int i = 0; i < 40; ++i) words.push_back(fmt::format("{}.{} ", request.prompt.size(), i));
    return answer_events(words);
  };
  engine->step_microseconds = 500;
  start();
  std::vector<std::thread> clients;
  std::atomic<int> good{0};
  for (int c = 0; c < 50; ++c) {
    clients.emplace_back([this, c, &good] {
      HttpClient client(server->port());
      for (int round = 0; round < 2; ++round) {
        const Reply reply = client.post(
            "/v1/completions", Json{{"prompt", std::string(static_cast<size_t>(c) + 1, 'x')},
                                    {"stream", true},
                                    {"max_tokens", 100}});
        std::string text;
        for (const std::string& event : reply.events()) {
          if (event != "[DONE]")
            text += Json::parse(event)["choices"][0]["text"].get<std::string>();
        }
        std::string wanted;
        for (int i = 0; i < 40; ++i) wanted += fmt::format("{}.{} ", c + 1, i);
        good += text == wanted && reply.complete;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(good, 100);
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
}

TEST_F(FailureTest, ALargePromptDoesNotHoldUpTheProbes) {
  constexpr size_t kLetters = HEDDLE_SANITIZED ? 1'000'000 : 10'000'000;
  engine->mutable_model_info().context_length = 100'000'000;
  codec_gate->closed = true;
  start();
  HttpClient large(server->port());
  large.send_request("POST", "/v1/completions",
                     Json{{"prompt", std::string(kLetters, 'a')}}.dump());
  ASSERT_TRUE(eventually([this] { return codec_gate->num_waiting == 1; }));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get("/health").status, 200) << "while it is tokenized";
  codec_gate->closed = false;
  EXPECT_EQ(large.read_reply().status, 200);
}

TEST_F(FailureTest, BrokenJsonIsNamedInTheError) {
  start();
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("nul"), std::string("{\"a\": \"\xff\"}"),
        std::string("{\"a\": 1e999}"), std::string(100000, '['),
        std::string("{\"a\": \"\\ud800\"}"), std::string("{} {}"), std::string("\xef\xbb\xbf"),
        std::string(1, '\0')}) {
    const Reply reply = connect().post_text("/v1/chat/completions", std::string_view(body));
    EXPECT_EQ(reply.status, 400) << body.substr(0, 20);
    EXPECT_EQ(error_of(reply).value("code", ""), "invalid_json") << reply.body;
  }
  for (const char* body : {"[]", "5", "\"text\"", "null", "true"}) {
    EXPECT_EQ(error_of(connect().post_text("/generate", std::string_view(body))).value("code", ""),
              "invalid_type");
  }
  std::string wide = "{";
  for (int i = 0; i < 3000; ++i) wide += fmt::format("\"{}\":1,", i);
  EXPECT_EQ(connect().post_text("/generate", std::string_view(wide + "\"a\":1}")).status, 400);
}

TEST_F(FailureTest, TheJsonSuiteNeverHurts) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/json_test_suite/test_parsing");
  start();
  HttpClient client(server->port());
  int num_bodies = 0;
  for (const auto& file : std::filesystem::directory_iterator(path)) {
    const std::string text = file_text(file.path());
    for (const std::string& body :
         {text, "{\"text\": " + text + "}", "{\"text\": \"a\", \"unheard_of\": " + text + "}",
          "{\"text\": \"a\", \"sampling_params\": {\"stop\": " + text + "}}"}) {
      const Reply reply = client.post_text("/generate", std::string_view(body));
      EXPECT_TRUE(reply.status == 200 || reply.status == 400)
          << file.path().filename() << " -> " << reply.status;
      ++num_bodies;
      if (file.path().filename().string().starts_with("n_") && body == text) {
        EXPECT_EQ(reply.status, 400) << file.path().filename();
        EXPECT_EQ(error_of(reply)["code"], "invalid_json") << file.path().filename();
      }
    }
    const Reply valid =
        client.post_text("/generate", "{\"text\": \"a\", \"unheard_of\": " + text + "}");
    if (file.path().filename().string().starts_with("y_")) {
      EXPECT_EQ(valid.status, 200) << file.path().filename() << valid.body;
    }
  }
  EXPECT_GT(num_bodies, 1000);
}

}  // namespace
}  // namespace heddle::server
