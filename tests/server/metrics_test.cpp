// SPDX-License-Identifier: Apache-2.0
// /metrics and /flush_cache.
#include "server/server_fixture.h"
#include "support/exposition.h"

namespace heddle::server {
namespace {

class MetricsTest : public ServerTest {
 protected:
  testing::Exposition metrics() const { return testing::parse_exposition(get("/metrics").body); }
};

TEST_F(MetricsTest, AreWhatEngineAndServerCounted) {
  options.api_key = "secret";  // which scrapers need not know
  start();
  const Reply reply = get("/metrics");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(testing::parse_exposition(reply.body).value("heddle_fake"), 1);
}

TEST_F(MetricsTest, CountRequestsByRouteAndStatusNotByWhatClientsMakeUp) {
  start();
  for (int i = 0; i < 3; ++i) post("/v1/chat/completions", chat_body());
  post("/v1/chat/completions", {{"messages", 5}});
  get("/v1/models/no-such-model");
  get("/nothing/at/all");
  get("/nothing/else");
  // The count of an answer follows its last byte.
  EXPECT_TRUE(eventually([this] {
    return get("/metrics").body.find(R"(route="other",status="404"} 2)") != std::string::npos;
  }));
  const auto text = metrics();
  const auto count = [&](std::string_view route, std::string_view status) {
    return text.value("heddle_http_requests_total",
                      {fmt::format("route=\"{}\"", route), fmt::format("status=\"{}\"", status)});
  };
  EXPECT_EQ(count("/v1/chat/completions", "200"), 3);
  EXPECT_EQ(count("/v1/chat/completions", "400"), 1);
  EXPECT_EQ(count("/v1/models/", "404"), 1);
  EXPECT_EQ(text.value("heddle_http_request_seconds_count", {R"(route="/v1/chat/completions")"}),
            4);
}

TEST_F(MetricsTest, CountWhatIsNotReadToItsEnd) {
  options.http.max_request_bytes = 1000;
  start();
  post("/generate", {{"text", std::string(1001, 'x')}});
  HttpClient client(server->port());
  client.send("no request\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 400);
  const auto text = metrics();
  const auto count = [&](std::string_view route, std::string_view status) {
    return text.value("heddle_http_requests_total", {route, status});
  };
  EXPECT_EQ(count(R"(route="/generate")", R"(status="413")"), 1);
  EXPECT_EQ(count(R"(route="other")", R"(status="400")"), 1);
}

TEST_F(MetricsTest, CountClientsThatLeave) {
  engine->held = true;
  start();
  HttpClient client(server->port());
  client.send_request("POST", "/v1/chat/completions", chat_body().dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  client.reset();
  EXPECT_TRUE(
      eventually([this] { return metrics().value("heddle_client_disconnects_total") == 1; }));
}

TEST_F(MetricsTest, AreThereWhileTheModelLoads) {
  listen();
  EXPECT_EQ(get("/metrics").status, 200);
  serve();
}

TEST_F(MetricsTest, CanBeTurnedOff) {
  options.metrics = false;
  start();
  EXPECT_EQ(get("/metrics").status, 404);
}

TEST_F(MetricsTest, TheCacheIsFlushedWhenNothingRuns) {
  start();
  const Reply reply = connect().call("POST", "/flush_cache");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, "The cache is empty.\n");
  EXPECT_EQ(get("/flush_cache?x=1&timeout=2.5").status, 200);
  EXPECT_THAT(engine->clear_timeouts(), ::testing::ElementsAre(0, 2.5));
}

TEST_F(MetricsTest, TheCacheIsNotFlushedUnderARunningRequest) {
  engine->held = true;
  start();
  HttpClient running(server->port());
  running.send_request("POST", "/v1/chat/completions", chat_body().dump());
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  const Reply reply = get("/flush_cache");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["code"], "conflict");
  for (const char* timeout : {"-1", "soon", "nan", ""}) {
    const Reply wrong = get(fmt::format("/flush_cache?timeout={}", timeout));
    EXPECT_EQ(error_of(wrong)["param"], "timeout") << timeout;
  }
}

}  // namespace
}  // namespace heddle::server
