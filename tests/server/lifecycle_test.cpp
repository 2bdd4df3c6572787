// SPDX-License-Identifier: Apache-2.0
// Loading, serving, draining, ending.
#include <future>

#include "server/server_fixture.h"

namespace heddle::server {
namespace {

class LifecycleTest : public ServerTest {};

TEST_F(LifecycleTest, WhileLoadingItAnswersThatItLoads) {
  listen();
  server->set_load_progress(25, 100);
  const Reply health = get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["status"], "loading");
  EXPECT_EQ(health.json()["progress"], 0.25);
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/livez").status, 200);
  const Reply chat = post("/v1/chat/completions", chat_body());
  EXPECT_EQ(chat.status, 503);
  EXPECT_EQ(error_of(chat)["code"], "loading");
  EXPECT_TRUE(chat.headers.contains("retry-after"));
  EXPECT_EQ(get("/v1/models").status, 503);
  serve();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(post("/v1/chat/completions", chat_body()).status, 200);
}

TEST_F(LifecycleTest, WorkWithoutStepsIsUnhealthy) {
  start();
  engine->last_step_seconds_ago = 21;
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/health").json()["status"], "stuck");
  EXPECT_TRUE(get("/health").headers.contains("retry-after"));
  EXPECT_EQ(get("/livez").status, 200);
  engine->stuck_after_seconds = 60;  // its steps are slow
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(LifecycleTest, AnEngineThatHasStoppedIsUnhealthy) {
  start();
  engine->set_health(device_lost("boom"));
  for (const char* path : {"/health", "/health_generate", "/readyz"}) {
    const Reply reply = get(path);
    EXPECT_EQ(reply.status, 503) << path;
    EXPECT_EQ(reply.json()["status"], "failed") << path;
    EXPECT_TRUE(reply.headers.contains("retry-after")) << path;
    EXPECT_THAT(reply.body, ::testing::Not(::testing::HasSubstr("boom"))) << path;
  }
  EXPECT_EQ(get("/get_server_info").json()["status"], "failed");
  EXPECT_EQ(get("/livez").status, 200);
}

TEST_F(LifecycleTest, AnIdleEngineShowsByATokenThatItGenerates) {
  engine->script = [](const Request&) {
    return answer_events({"a"}, finish_of(FinishReason::kLength));
  };
  engine->stuck_after_seconds = 0.2;
  start();
  // On a busy machine a token may take longer than the limit.
  EXPECT_TRUE(eventually([this] {
    const Reply reply = get("/health_generate");
    return reply.status == 200 && reply.json()["status"] == "ok";
  }));
  const size_t num_probes = engine->submitted().size();
  ASSERT_GE(num_probes, 1u);
  EXPECT_EQ(engine->submitted()[0].stop.max_new_tokens, 1);
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));

  engine->held = true;  // it does not any more
  const Reply stuck = get("/health_generate");
  EXPECT_EQ(stuck.status, 503);
  EXPECT_EQ(stuck.json()["status"], "stuck");
  EXPECT_EQ(stuck.json()["message"], "No token was drawn within 0.2 s.");
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; })) << "it is not left behind";

  HttpClient impatient(server->port());
  impatient.send_request("GET", "/health_generate");
  ASSERT_TRUE(eventually([&] { return engine->submitted().size() == num_probes + 2; }));
  impatient.reset();
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));

  engine->set_refuse([](const Request&) { return unavailable("broken"); });
  EXPECT_EQ(get("/health_generate").json()["message"], "broken");
}

TEST_F(LifecycleTest, AProbeThatAPauseMeetsSaysThatTheEngineIsPaused) {
  engine->stuck_after_seconds = 0.2;
  start();
  for (const char* mode : {"abort", "retract", "in_place"}) {
    engine->held = true;
    // Again when the pause came too late for the limit.
    EXPECT_TRUE(eventually([&] {
      const size_t before = engine->submitted().size();
      HttpClient probe(server->port());
      probe.send_request("GET", "/health_generate");
      EXPECT_TRUE(eventually([&] { return engine->submitted().size() > before; }));
      EXPECT_EQ(post("/pause_generation", {{"mode", mode}}).status, 200);
      const Reply reply = probe.read_reply();
      EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }))
          << "it is not left behind";
      EXPECT_EQ(connect().call("POST", "/continue_generation").status, 200);
      return reply.status == 200 && reply.json()["status"] == "paused";
    })) << mode;
  }
}

TEST_F(LifecycleTest, AnAbortedProbeIsNoSignOfADeadEngine) {
  engine->held = true;
  start();
  HttpClient probe(server->port());
  probe.send_request("GET", "/health_generate");
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  engine->cancel(
      engine->submitted().front().id);  // by a pause that is over when the probe hears of it
  const Reply reply = probe.read_reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json()["status"], "ok");
}

TEST_F(LifecycleTest, AProbeThatFindsTheEngineAtWorkForOthersDoesNotCallItStuck) {
  engine->stuck_after_seconds = 0.2;
  engine->script = [](const Request&) { return std::vector<RequestEvent>{RequestEvent()}; };
  start();
  EXPECT_TRUE(eventually([this] { return get("/health_generate").status == 200; }))
      << "steps went on all the time";
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 0; }));
  engine->set_refuse([](const Request&) { return resource_exhausted("the queue is full"); });
  EXPECT_EQ(get("/health_generate").status, 200);
  engine->set_refuse(nullptr);
  for (const auto& [error, status] :
       {std::pair(resource_exhausted("full by its tokens"), 200), {internal_error("boom"), 503}}) {
    SCOPED_TRACE(error.message());
    engine->script = [failure = error](const Request&) {
      return answer_events({}, finish_of(FinishReason::kError, failure));
    };
    // Again when the engine's answer came too late for the limit.
    EXPECT_TRUE(eventually([&, wanted = status] {
      engine->held = true;
      const size_t before = engine->submitted().size();
      HttpClient probe(server->port());
      probe.send_request("GET", "/health_generate");
      EXPECT_TRUE(eventually([&] { return engine->submitted().size() > before; }));
      engine->held = false;
      return probe.read_reply().status == wanted;
    }));
    ASSERT_TRUE(eventually([this] { return engine->num_live() == 0; }));
  }
}

TEST_F(LifecycleTest, ABusyOrPausedEngineIsNotAskedForAToken) {
  engine->held = true;
  start();
  HttpClient running(server->port());
  running.send_request("POST", "/v1/chat/completions", chat_body().dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  EXPECT_EQ(get("/health_generate").json()["running"], 1);
  engine->held = false;
  EXPECT_EQ(running.read_reply().status, 200);
  EXPECT_EQ(post("/pause_generation", Json::object()).status, 200);
  EXPECT_EQ(get("/health_generate").json()["status"], "paused");
  EXPECT_EQ(engine->submitted().size(), 1u);
  engine->last_step_seconds_ago = 21;
  EXPECT_EQ(get("/health_generate").status, 503);
}

TEST_F(LifecycleTest, ServerInfoShowsWhatItRunsWithAndNoKey) {
  options.api_key = "very-secret";
  options.version = "1.2.3";
  options.model_path = "folder/model";
  options.served_model_names = {"m", "other"};
  configuration = {{"model_path", "folder/model"},
                   {"port", 1234},
                   {"policy", "fcfs"},
                   {"exact", true},
                   {"default_priority", nullptr},
                   {"served_model_name", {"m", "other"}},
                   {"fair_keys", {"a", "b"}}};
  listen();
  const auto ask = [this](const char* path) {
    return connect().call("GET", path, {}, "Authorization: Bearer very-secret\r\n");
  };
  EXPECT_EQ(error_of(ask("/get_server_info"))["code"], "loading");
  serve();
  EXPECT_EQ(get("/get_server_info").status, 401);
  const Reply reply = ask("/get_server_info");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, ask("/server_info").body);
  const Json info = reply.json();
  EXPECT_EQ(info["status"], "ok");
  EXPECT_EQ(info["version"], "1.2.3");
  EXPECT_EQ(info["served_model_name"], "m");
  for (const char* name : {"port", "policy", "exact", "default_priority", "fair_keys"}) {
    EXPECT_EQ(info.value(name, Json("missing")), configuration[name]) << name;
  }
  EXPECT_EQ(info["tokenizer_path"], "folder/model");
  EXPECT_EQ(info["max_req_input_len"], 32767);
  EXPECT_EQ(info["internal_states"][0]["num_running_reqs"], 0);
  EXPECT_THAT(reply.body, ::testing::Not(::testing::HasSubstr("secret")));
  EXPECT_EQ(connect().call("POST", "/pause_generation", {}, "x-api-key: very-secret\r\n").status,
            200);
  EXPECT_EQ(ask("/get_server_info").json()["status"], "paused");
}

TEST_F(LifecycleTest, DrainingFinishesWhatRunsAndRefusesTheRest) {
  engine->held = true;
  start();
  HttpClient running(server->port());
  running.send_request("POST", "/v1/chat/completions", chat_body().dump());
  HttpClient streaming(server->port());
  streaming.send_request("POST", "/v1/chat/completions", chat_body({{"stream", true}}).dump());
  HttpClient waiting(server->port());
  EXPECT_EQ(waiting.call("GET", "/health").status, 200);
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 2; }));

  auto aborted = std::async(std::launch::async, [this] { return server->shutdown(); });
  ASSERT_TRUE(eventually([this] { return get("/health").status == 503; }));
  EXPECT_EQ(get("/health").json()["status"], "draining");
  EXPECT_TRUE(get("/health").headers.contains("retry-after"));
  EXPECT_EQ(get("/readyz").status, 503);
  const Reply refused = waiting.post("/v1/chat/completions", chat_body());
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(error_of(refused)["code"], "shutting_down");

  engine->held = false;
  EXPECT_EQ(running.read_reply().status, 200);
  EXPECT_EQ(streaming.read_reply().events().back(), "[DONE]");
  EXPECT_EQ(aborted.get(), 0);
  EXPECT_FALSE(HttpClient(server->port()).connected());
}

TEST_F(LifecycleTest, RequestsThatDoNotFinishInTimeGetAnError) {
  options.shutdown_timeout_seconds = 0.1;
  engine->script = [](const Request&) {  // without end
    auto events = answer_events({"x"});
    events.pop_back();
    return events;
  };
  start();
  engine->step_microseconds = 20000;
  HttpClient streaming(server->port());
  streaming.send_request("POST", "/v1/chat/completions", chat_body({{"stream", true}}).dump());
  HttpClient plain(server->port());
  plain.send_request("POST", "/v1/chat/completions", chat_body().dump());
  ASSERT_TRUE(streaming.read_until("\"x\""));
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 2; }));
  EXPECT_EQ(server->shutdown(), 2);
  const Reply stream = streaming.read_reply();
  ASSERT_GE(stream.events().size(), 2u);
  EXPECT_EQ(stream.events().back(), "[DONE]");
  EXPECT_EQ(Json::parse(stream.events().end()[-2])["error"]["code"], "shutting_down");
  EXPECT_EQ(Json::parse(stream.events().end()[-2])["error"]["message"],
            "The server has shut down before this answer was complete.");
  EXPECT_EQ(error_of(plain.read_reply())["code"], "shutting_down");
}

TEST_F(LifecycleTest, AUsersAbortWhileDrainingEndsAsAnAbort) {
  start();
  engine->step_microseconds = 1000;
  engine->held = true;
  HttpClient one(server->port());
  one.send_request("POST", "/v1/chat/completions", chat_body({{"rid", "one"}}).dump());
  HttpClient other(server->port());
  other.send_request("POST", "/v1/chat/completions", chat_body({{"rid", "other"}}).dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 2; }));
  auto aborted = std::async(std::launch::async, [this] { return server->shutdown(); });
  ASSERT_TRUE(eventually([this] { return get("/health").status == 503; }));
  EXPECT_EQ(post("/abort_request", {{"rid", "one"}}).status, 200);
  const Reply reply = one.read_reply();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json()["choices"][0]["finish_reason"], "abort");
  EXPECT_EQ(post("/abort_request", {{"abort_all", true}}).status, 200);
  EXPECT_EQ(other.read_reply().json()["choices"][0]["finish_reason"], "abort");
  EXPECT_EQ(aborted.get(), 0);
}

TEST_F(LifecycleTest, GenerationIsPausedAsAskedAndGoesOn) {
  start();
  EXPECT_EQ(post("/pause_generation", Json::object()).json()["status"], "ok");
  EXPECT_EQ(get("/health").json()["status"], "paused");
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/readyz").json()["status"], "paused");
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_TRUE(get("/readyz").headers.contains("retry-after"));
  EXPECT_EQ(post("/pause_generation", {{"mode", "retract"}}).status, 200);
  EXPECT_EQ(post("/pause_generation", {{"mode", "in_place"}}).status, 200);
  EXPECT_EQ(connect().call("POST", "/pause_generation").status, 200);
  EXPECT_THAT(engine->pauses(), ::testing::ElementsAre(PauseMode::kAbort, PauseMode::kRetract,
                                                       PauseMode::kInPlace, PauseMode::kAbort));
  const Reply reply = connect().call("POST", "/continue_generation");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json()["status"], "ok");
  EXPECT_TRUE(reply.json().contains("message"));
  EXPECT_EQ(get("/health").json()["status"], "ok");
  EXPECT_EQ(get("/readyz").status, 200);
}

TEST_F(LifecycleTest, AFullQueueIsNotReadyForThoseWhoAskStrictly) {
  engine->mutable_options().max_queued_requests = 3;
  start();
  for (const int64_t waiting : {0, 2, 3}) {
    engine->num_waiting = waiting;
    EXPECT_EQ(get("/readyz").status, 200);
    EXPECT_EQ(get("/readyz?strict=0").status, 200);
    EXPECT_EQ(get("/readyz?strict=1").status, waiting < 3 ? 200 : 503) << waiting;
  }
  EXPECT_EQ(get("/readyz?strict=1").json()["status"], "overloaded");
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(LifecycleTest, AnUnknownPauseIsRefused) {
  start();
  const Reply wrong = post("/pause_generation", {{"mode", "gently"}});
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(error_of(wrong)["param"], "mode");
  EXPECT_EQ(post("/pause_generation", {{"mode", 3}}).status, 400);
  EXPECT_EQ(connect().post_text("/pause_generation", "{").status, 400);
  EXPECT_EQ(get("/pause_generation").status, 405);
  const std::string large = "{\"mode\":\"abort\"" + std::string(64 << 10, ' ') + "}";
  for (const char* path : {"/pause_generation", "/abort_request"}) {
    EXPECT_EQ(error_of(connect().post_text(path, large))["code"], "request_too_large") << path;
  }
  EXPECT_TRUE(engine->pauses().empty());
}

TEST_F(LifecycleTest, StoppingWhileLoadingIsFine) {
  listen();
  HttpClient idle(server->port());
  EXPECT_EQ(idle.call("GET", "/health").status, 503);
  EXPECT_EQ(server->shutdown(), 0);
  EXPECT_TRUE(idle.at_end());
}

TEST_F(LifecycleTest, AServerMayBeDestroyedWithoutAShutdown) {
  engine->held = true;
  start();
  HttpClient running(server->port());
  running.send_request("POST", "/v1/chat/completions", chat_body().dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  server.reset();
  running.read_reply();
}

}  // namespace
}  // namespace heddle::server
