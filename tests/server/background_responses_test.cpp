// SPDX-License-Identifier: Apache-2.0
// Responses whose clients do not wait for them.
#include <deque>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/responses_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class BackgroundTest : public ResponsesFixture {
 protected:
  // The response once it has ended.
  [[nodiscard]] Json ended(const std::string& id) const {
    Json response;
    EXPECT_TRUE(eventually([&] {
      response = get("/v1/responses/" + id).json();
      return response["status"] != "in_progress";
    }));
    return response;
  }
};

TEST_F(BackgroundTest, AResponseIsFetchedByItsIdWhenItHasEnded) {
  engine->held = true;
  start();
  const Reply queued = post("/v1/responses", {{"input", "Hi"}, {"background", true}});
  ASSERT_EQ(queued.status, 200) << queued.body;
  EXPECT_EQ(queued.json()["status"], "queued");
  EXPECT_EQ(queued.json()["background"], true);
  EXPECT_EQ(queued.json()["output"], Json::array());
  const std::string id = queued.json()["id"];
  EXPECT_EQ(get("/v1/responses/" + id).json()["status"], "in_progress");
  const Reply early = post("/v1/responses", {{"input", "And?"}, {"previous_response_id", id}});
  EXPECT_EQ(early.status, 400);
  EXPECT_EQ(error_of(early)["param"], "previous_response_id");
  engine->held = false;
  const Json response = ended(id);
  EXPECT_EQ(response["id"], id);
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "Hello there");
  EXPECT_EQ(post("/v1/responses", {{"input", "And?"}, {"previous_response_id", id}}).status, 200);
  EXPECT_THAT(last_prompt(), HasSubstr("assistant: Hello there|user: And?"));
  const Reply late = post("/v1/responses/" + id + "/cancel", Json::object());
  EXPECT_EQ(late.status, 400) << "it has ended";
}

TEST_F(BackgroundTest, AStreamFollowsAResponseToItsEnd) {
  engine->held = true;
  start();
  const Json queued = post("/v1/responses", {{"input", "Hi"}, {"background", true}}).json();
  const std::string path = "/v1/responses/" + queued["id"].get<std::string>();
  HttpClient early = connect();
  early.send_request("GET", path + "?stream=true");
  HttpClient leaver = connect();
  leaver.send_request("GET", path + "?stream=true");
  EXPECT_TRUE(leaver.read_until("response.in_progress"));
  leaver.close();
  EXPECT_TRUE(early.read_until("response.in_progress"));
  EXPECT_THAT(early.pending(), HasSubstr("response.created"));
  engine->held = false;
  const Json response = ended(queued["id"]);
  const Reply followed = early.read_reply();
  EXPECT_TRUE(followed.complete);
  EXPECT_THAT(followed.body, HasSubstr("\"delta\":\"Hello there\""));
  EXPECT_EQ(get(path + "?stream=true").body, followed.body);
  EXPECT_THAT(followed.body, HasSubstr(response.dump()));
}

TEST_F(BackgroundTest, AStreamGoesOnWithoutItsClientAndIsComeBackTo) {
  engine->script = [](const Request&) {
    std::vector<RequestEvent> events = answer_events({"On and on. "});
    events.pop_back();  // without an end
    return events;
  };
  engine->step_microseconds = 1000;
  start();
  HttpClient client = connect();
  const Json body = {{"input", "Hi"}, {"background", true}, {"stream", true}};
  client.send_request("POST", "/v1/responses", body.dump());
  ASSERT_TRUE(client.read_until("response.output_text.delta")) << "while it runs";
  const std::string& begin = client.pending();
  const size_t id_begin = begin.find("\"resp_") + 1;  // not in the headers
  const std::string id = begin.substr(id_begin, begin.find('"', id_begin) - id_begin);
  client.close();
  const std::string path = "/v1/responses/" + id;
  EXPECT_EQ(get(path).json()["status"], "in_progress");
  HttpClient again = connect();
  again.send_request("GET", path + "?stream=true&starting_after=3");
  HttpClient whole = connect();
  whole.send_request("GET", path + "?stream=true");
  ASSERT_TRUE(again.read_until("\"sequence_number\":9,"));
  ASSERT_TRUE(whole.read_until("\"sequence_number\":9,"));
  EXPECT_EQ(post(path + "/cancel", Json::object()).status, 200);
  const std::string rest = again.read_reply().body;
  const std::string all = whole.read_reply().body;
  EXPECT_THAT(rest, ::testing::StartsWith("event: response.output_text.delta\n"
                                          "data: {\"type\":\"response.output_text.delta\","
                                          "\"sequence_number\":4,"));
  EXPECT_TRUE(all.starts_with("event: response.created\n"));
  EXPECT_TRUE(all.ends_with(rest));
  EXPECT_EQ(ended(id)["status"], "cancelled");
  EXPECT_EQ(get(path + "?stream=true").body, all) << "the events that were kept";
  EXPECT_EQ(get(path + "?stream=true&starting_after=3").body, rest);
}

TEST_F(BackgroundTest, AStreamEndsWithItsFailure) {
  for (const bool has_begun : {false, true}) {
    engine->script = [has_begun](const Request&) {
      std::vector<RequestEvent> events = answer_events({"Hello"});
      events.back().finish = finish_of(FinishReason::kError, internal_error("secret"));
      if (!has_begun) events.erase(events.begin());
      return events;
    };
    if (server == nullptr) start();
    const Reply reply =
        post("/v1/responses", {{"input", "Hi"}, {"background", true}, {"stream", true}});
    EXPECT_EQ(reply.status, 200);
    EXPECT_TRUE(reply.complete);
    EXPECT_THAT(reply.body, ::testing::StartsWith("event: response.created\n"));
    EXPECT_THAT(reply.body, HasSubstr("event: response.failed\n"));
    EXPECT_THAT(reply.body, HasSubstr("\"code\":\"internal_error\""));
    const size_t id_begin = reply.body.find("resp_");
    const std::string id = reply.body.substr(id_begin, reply.body.find('"', id_begin) - id_begin);
    EXPECT_EQ(get("/v1/responses/" + id).json()["status"], "failed");
  }
}

TEST_F(BackgroundTest, AResponseThatRunsIsCancelled) {
  engine->script = [](const Request&) {
    std::vector<RequestEvent> events = answer_events({"On and on. "});
    events.pop_back();  // without an end
    return events;
  };
  start();
  const std::string id =
      post("/v1/responses", {{"input", "Hi"}, {"background", true}}).json()["id"];
  const Reply cancelled = post("/v1/responses/" + id + "/cancel", Json::object());
  ASSERT_EQ(cancelled.status, 200) << cancelled.body;
  EXPECT_EQ(cancelled.json()["status"], "cancelled");
  // The engine's own end takes the place of what the route has shown.
  Json response;
  EXPECT_TRUE(eventually([&] {
    response = get("/v1/responses/" + id).json();
    return response.contains("usage");
  }));
  EXPECT_EQ(response["status"], "cancelled");
  EXPECT_EQ(engine->num_live(), 0u);
}

TEST_F(BackgroundTest, AnIdNamesOneResponse) {
  engine->held = true;
  start();
  const std::string body = Json{{"input", "Hi"}, {"background", true}}.dump();
  std::deque<HttpClient> clients;
  codec_gate->closed = true;  // the first two are read at the same time
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server->port())
        .send_request("POST", "/v1/responses", body, "x-request-id: mine\r\n");
    if (i == 1) {
      EXPECT_TRUE(eventually([this] { return codec_gate->num_waiting == 2; }));
      codec_gate->closed = false;
    }
  }
  std::set<std::string> ids;
  for (HttpClient& client : clients) {
    const Reply queued = client.read_reply();
    ASSERT_EQ(queued.status, 200) << queued.body;
    ids.insert(queued.json()["id"].get<std::string>());
  }
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_TRUE(ids.contains("mine"));

  const Json named = {{"input", "Hi"}, {"background", true}, {"rid", "job1"}};
  const Reply job = post("/v1/responses", named);
  EXPECT_EQ(job.status, 200) << job.body;
  EXPECT_EQ(job.headers.at("x-request-id"), "job1");
  const Reply runs = post("/v1/responses", named);
  EXPECT_EQ(runs.status, 400) << runs.body;
  EXPECT_EQ(error_of(runs)["param"], "rid");
  engine->held = false;
  for (const std::string& id : ids) EXPECT_EQ(ended(id)["status"], "completed");
  EXPECT_EQ(ended("job1")["status"], "completed");
  EXPECT_EQ(post("/v1/responses", named).status, 400) << "it is kept";
}

TEST_F(BackgroundTest, ReportsFailedAndRefusedResponses) {
  engine->script = [](const Request&) {
    return answer_events({}, finish_of(FinishReason::kError, internal_error("secret")));
  };
  start();
  const std::string id =
      post("/v1/responses", {{"input", "Hi"}, {"background", true}}).json()["id"];
  const Json failed = ended(id);
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_EQ(failed["error"]["code"], "internal_error");
  engine->set_refuse([](const Request&) { return resource_exhausted("the queue is full"); });
  const Reply refused = post("/v1/responses", {{"input", "Hi"}, {"background", true}});
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(error_of(refused)["code"], "queue_full");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
}

TEST_F(BackgroundTest, ItsClientMayLeave) {
  engine->held = true;
  start();
  std::string id;
  {
    HttpClient client = connect();
    id = client.post("/v1/responses", Json{{"input", "Hi"}, {"background", true}}).json()["id"];
    client.close();
  }
  engine->held = false;
  EXPECT_EQ(ended(id)["status"], "completed");
}

}  // namespace
}  // namespace heddle::server
