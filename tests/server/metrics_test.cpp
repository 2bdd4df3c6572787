// SPDX-License-Identifier: Apache-2.0
// /metrics and /flush_cache.
#include <ctime>

#include "server/server_fixture.h"
#include "support/exposition.h"

namespace heddle::server {
namespace {

class MetricsTest : public ServerTest {
 protected:
  [[nodiscard]] testing::Exposition metrics() const {
    return testing::parse_exposition(get("/metrics").body);
  }
};

TEST_F(MetricsTest, AreWhatEngineAndServerCounted) {
  options.api_key = "secret";  // which scrapers need not know
  start();
  const Reply reply = get("/metrics");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(testing::parse_exposition(reply.body).value("heddle_fake"), 1);
}

TEST_F(MetricsTest, SayWhatRunsAndWhatTheProcessTakes) {
  options.build = {{"version", "1.2.3"}, {"commit", "abc"}};
  start();
  const auto text = metrics();
  EXPECT_EQ(text.value("heddle_build_info", {R"(version="1.2.3")", R"(commit="abc")"}), 1);
  const double resident = text.value("process_resident_memory_bytes");
  EXPECT_GT(resident, 1 << 20);
  EXPECT_GE(text.value("process_virtual_memory_bytes"), resident);
  EXPECT_GT(text.value("process_open_fds"), 3);
  EXPECT_GE(text.value("process_max_fds"), text.value("process_open_fds"));
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_LE(text.value("process_start_time_seconds"), now + 1);
  EXPECT_GT(text.value("process_start_time_seconds"), now - 24 * 3600);
  const double before = text.value("process_cpu_seconds_total");
  EXPECT_GT(before, 0);
  EXPECT_EQ(text.types.at("process_cpu_seconds_total"), "counter");
  EXPECT_GE(metrics().value("process_cpu_seconds_total"), before);
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

// Requests whose end was never read: counted and logged as the others are, but without a time.
TEST_F(MetricsTest, CountWhatIsNotReadToItsEnd) {
  options.http.max_request_bytes = 1000;
  start();
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  const auto answer_to = [this](std::string_view bytes) {
    HttpClient client(server->port());
    client.send(bytes);
    return client.read_reply().status;
  };
  const std::string head = "POST /generate HTTP/1.1\r\nHost: t\r\nx-request-id: mine\r\n";
  EXPECT_EQ(answer_to("no request\r\n\r\n"), 400);
  EXPECT_EQ(answer_to(head + "Content-Length: 1001\r\n\r\n"), 413);
  EXPECT_EQ(answer_to(head + "Transfer-Encoding: chunked\r\n\r\nno number\r\n"), 400);
  EXPECT_EQ(answer_to(head + "Transfer-Encoding: gzip\r\n\r\n"), 501);
  EXPECT_EQ(answer_to("GET /health HTTP/1.1\r\nHost: t\r\nContent-Length: 1001\r\n\r\n"), 413);
  HttpClient client(server->port());
  client.send(head + "Content-Length: 10\r\n\r\n{");
  client.reset();
  EXPECT_TRUE(
      eventually([this] { return metrics().value("heddle_client_disconnects_total") == 1; }));
  const std::string log = ::testing::internal::GetCapturedStderr();

  const auto text = metrics();
  const auto count = [&](std::string_view route, int status) {
    return text.value("heddle_http_requests_total",
                      {fmt::format("route=\"{}\"", route), fmt::format("status=\"{}\"", status)});
  };
  EXPECT_EQ(count("other", 400), 1);
  EXPECT_THAT(log, ::testing::ContainsRegex(" no request 400 [^\n]* -\n"));
  for (const int status : {400, 413, 499, 501}) {
    EXPECT_EQ(count("/generate", status), 1) << status;
    EXPECT_THAT(log,
                ::testing::ContainsRegex(fmt::format("POST /generate {} [^\n]* mine\n", status)));
  }
  EXPECT_EQ(count("/health", 413), 1);
  EXPECT_THAT(log, ::testing::HasSubstr("GET /health 413 "));
  EXPECT_EQ(get("/metrics").body.find("heddle_http_request_seconds_count{route=\"/generate\"}"),
            std::string::npos);
}

TEST_F(MetricsTest, TheLogNamesACallByTheIdInItsBody) {
  start();
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  const Json body = {{"text", "a"}, {"rid", "in-the-body"}};
  HttpClient client(server->port());
  const Reply reply =
      client.call("POST", "/generate", body.dump(), "x-request-id: in-the-head\r\n");
  EXPECT_EQ(reply.headers.at("x-request-id"), "in-the-body");
  get("/metrics");  // the line of an answer follows its last byte
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::ContainsRegex("POST /generate 200 [^\n]* in-the-body\n"));
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
