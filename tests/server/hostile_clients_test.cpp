// SPDX-License-Identifier: Apache-2.0
// Clients that misbehave on the wire, while others are served: they get a refusal or a closed
// connection, and leave nothing behind. Faults in the contents of a request are the matter
// of attack_list_test.cpp.
#include <algorithm>
#include <random>

#include <sys/resource.h>

#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

constexpr int64_t kMaxBodyBytes = 1 << 20;
constexpr const char* kEnds = "ends";  // the id of requests whose answer ends by itself

class HostileClientsTest : public ServerTest {
 protected:
  HostileClientsTest() {
    options.http.max_request_bytes = kMaxBodyBytes;
    options.http.max_held_body_bytes = kMaxBodyBytes;  // bytes that are kept would be missed
  }

  // Nothing runs, no connection is held, and all the memory for bodies is free.
  void expect_unharmed() {
    EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
    EXPECT_TRUE(
        eventually([this] { return post(kChat, chat_body({{"rid", kEnds}})).status == 200; }));
    const std::string body = R"({"prompt": ")" + std::string(kMaxBodyBytes - 100, 'a') + R"("})";
    EXPECT_TRUE(eventually([&] { return connect().post_text("/tokenize", body).status == 200; }));
  }

  static std::string chat_request(const Json& extra = Json::object()) {
    return HttpClient::request_text("POST", kChat, chat_body(extra).dump());
  }

  // To all but kEnds `text` again and again, one event each, that the engine never ends by itself.
  static FakeEngine::Script endless(std::string text) {
    return [text = std::move(text)](const Request& request) {
      if (request.id == kEnds) return answer_events({"Hello"});
      RequestEvent event;
      event.tokens = {1};
      event.text = text;
      return std::vector<RequestEvent>{event};
    };
  }
};

TEST_F(HostileClientsTest, NulBytesAreRefusedWhereverTheyStand) {
  start();
  using namespace std::string_view_literals;
  for (const std::string_view head :
       {"GET /hea\0lth HTTP/1.1\r\nHost: a\r\n\r\n"sv,
        "GET /health HTTP/1.1\r\nHo\0st: a\r\n\r\n"sv,
        "GET /health HTTP/1.1\r\nHost: \0a\r\n\r\n"sv,
        "G\0ET /health HTTP/1.1\r\nHost: a\r\n\r\n"sv, "\0\0\0\0\r\n\r\n"sv}) {
    HttpClient client = connect();
    client.send(head);
    EXPECT_THAT(client.read_reply().status, AnyOf(Eq(400), Eq(0)));
  }
  for (const std::string_view body : {"\0"sv, "{\"text\": \"a\0b\"}"sv, "{\"text\": \"a\"}\0"sv,
                                      "\0{\"text\": \"a\"}"sv, "{\"te\0xt\": \"a\"}"sv}) {
    const Reply reply = connect().post_text("/generate", body);
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(error_of(reply)["code"], "invalid_json");
  }
  const Reply escaped = connect().post_text("/generate", R"({"text": "a\u0000b"})");
  EXPECT_EQ(escaped.status, 200) << "as text it is a character like others";
  EXPECT_EQ(engine->submitted().back().prompt.size(), 3u);
  expect_unharmed();
}

TEST_F(HostileClientsTest, LengthsThatContradictEachOtherAreRefused) {
  start();
  for (const char* const headers :
       {"Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: 5, 6\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked, identity\r\n", "Transfer-Encoding: identity, chunked\r\n",
        "Content-Length: +5\r\n", "Content-Length: 0x5\r\n", "Content-Length: 5 5\r\n",
        "Content-Length: 18446744073709551621\r\n", "Content-Length:\r\n"}) {
    HttpClient client = connect();
    client.send(
        fmt::format("POST /generate HTTP/1.1\r\nHost: a\r\n{}\r\nhello"
                    "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
                    headers));
    const Reply reply = client.read_reply();
    EXPECT_THAT(reply.status, AnyOf(Eq(400), Eq(413), Eq(501), Eq(0))) << headers;
    EXPECT_EQ(client.read_reply().status, 0) << headers << ": the rest is no request";
  }
  expect_unharmed();
}

// Each is read otherwise by one proxy or another.
TEST_F(HostileClientsTest, OddWaysToFrameARequestAreRefused) {
  start();
  const std::string rest = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string post = "POST /generate HTTP/1.1\r\nHost: a\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string& head : {post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
                                  post + "Transfer-Encoding: \x0b"
                                         "chunked\r\n\r\n0\r\n\r\n",
                                  post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
                                  post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
                                  post + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
                                  post + "Content-Length : 0\r\n\r\n",
                                  post + "X: a\rContent-Length: 5\r\n\r\n",
                                  post + "X: a\nContent-Length: 5\r\n\r\n",
                                  chunked + "0x0\r\n\r\n",
                                  chunked + "+0\r\n\r\n",
                                  chunked + " 0\r\n\r\n",
                                  chunked + "0 \r\n\r\n",
                                  chunked + "0\n\n",
                                  chunked + "0\r\nX: a\r\n b\r\n\r\n",
                                  chunked + "0\r\nX: a\r\n\t: b\r\nY: c\r\n\r\n",
                                  chunked + "2\r\n{}\r\n0\r\nX:\r\n  a\r\n\r\n",
                                  chunked + "1\r\naxx0\r\n\r\n",
                                  chunked + "10000000000000001\r\na\r\n0\r\n\r\n",
                                  std::string("POST /generate HTTP/1.1\nHost: a\n\n"),
                                  std::string("GET  /health HTTP/1.1\r\nHost: a\r\n\r\n"),
                                  std::string("GET /health HTTP/1.2\r\nHost: a\r\n\r\n")}) {
    HttpClient client = connect();
    client.send(head + rest);
    EXPECT_THAT(client.read_reply().status, AnyOf(Eq(400), Eq(501))) << head;
    EXPECT_EQ(client.read_reply().status, 0) << head << ": the rest is no request";
  }
  expect_unharmed();
}

TEST_F(HostileClientsTest, HeadersMayBeHugeOrMany) {
  start();
  std::string many;
  for (int i = 0; i < 20000; ++i) many += fmt::format("X-{}: y\r\n", i);
  for (const std::string& head :
       {"GET /health HTTP/1.1\r\nX-Long: " + std::string(100000, 'x') + "\r\n\r\n",
        "GET /health HTTP/1.1\r\n" + std::string(100000, 'x') + ": y\r\n\r\n",
        "GET /" + std::string(100000, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /health HTTP/1.1\r\n" + many + "\r\n", std::string(1 << 20, 'G')}) {
    HttpClient client = connect();
    client.send(head);
    EXPECT_THAT(client.read_reply().status, AnyOf(Eq(400), Eq(414), Eq(431), Eq(0)))
        << head.substr(0, 30);
  }
  expect_unharmed();
}

TEST_F(HostileClientsTest, ARequestMayComeByteByByte) {
  start();
  const std::string body = chat_body().dump();
  std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n",
      kChat);
  for (const char byte : body) request += fmt::format("1\r\n{}\r\n", byte);
  request += "0\r\n\r\n";
  HttpClient client = connect();
  for (const char byte : request) ASSERT_TRUE(client.send({&byte, 1}));
  EXPECT_EQ(client.read_reply().status, 200);
  expect_unharmed();
}

TEST_F(HostileClientsTest, SlowBodiesDelayNoOtherClientAndEnd) {
  options.http.body_timeout_seconds = 0.5;
  start();
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(std::make_unique<HttpClient>(server->port()));
    slow.back()->send("POST /generate HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{\"te");
  }
  EXPECT_EQ(post(kChat, chat_body()).status, 200);
  for (const auto& client : slow) EXPECT_EQ(client->read_reply().status, 408);
  EXPECT_EQ(engine->submitted().size(), 1u);
  expect_unharmed();
}

TEST_F(HostileClientsTest, AnUploadThatIsCutNeverStarts) {
  start();
  const std::string head =
      "POST /generate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
  const std::string half = R"({"text": ")" + std::string(500000, 'a');
  for (const std::string& upload :
       {head + "Content-Length: 1000000\r\n\r\n" + half,
        head + fmt::format("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n", half.size(), half),
        head + "Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + half}) {
    for (int i = 0; i < 10; ++i) {
      HttpClient closed = connect();
      closed.send(upload);
      closed.close();
      HttpClient reset = connect();
      reset.send(upload);
      reset.reset();
      HttpClient half_closed = connect();
      half_closed.send(upload);
      half_closed.shut_down_sending();
      EXPECT_THAT(half_closed.read_reply().status, AnyOf(Eq(0), Eq(400), Eq(503)));
    }
  }
  EXPECT_TRUE(engine->submitted().empty());
  expect_unharmed();
}

// As many as the files that this process may open allow: each takes two here.
TEST_F(HostileClientsTest, IdleConnectionsKeepNoClientOut) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 1000) GTEST_SKIP() << "only " << before.rlim_max << " files may be open";
  const rlimit files{.rlim_cur = std::min<rlim_t>(before.rlim_max, 20600),
                     .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  const auto count = static_cast<int64_t>(files.rlim_cur - 600) / 2;
  options.http.max_connections = static_cast<int32_t>(count) + 20;
  start();
  std::vector<std::unique_ptr<HttpClient>> idle;
  for (int64_t i = 0; i < count; ++i) {
    idle.push_back(std::make_unique<HttpClient>(server->port()));
    ASSERT_TRUE(idle.back()->connected()) << i;
  }
  EXPECT_EQ(post(kChat, chat_body()).status, 200);
  EXPECT_EQ(idle.front()->post(kChat, chat_body()).status, 200);
  EXPECT_EQ(idle.back()->post(kChat, chat_body()).status, 200);
  idle.clear();
  expect_unharmed();
  server.reset();
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(HostileClientsTest, ThousandsOfConnectionsComeAndGo) {
  start();
  for (int i = 0; i < 3000; ++i) {
    HttpClient client = connect();
    ASSERT_TRUE(client.connected()) << i;
    if (i % 3 == 0) client.reset();
  }
  expect_unharmed();
}

// While one client leaves after the other, at any moment of its request, another's stream comes
// whole and in order.
TEST_F(HostileClientsTest, AThousandLeaveAtAnyMomentAndAStreamGoesOn) {
  constexpr int kNumEvents = 2000;
  engine->script = [](const Request& request) {
    if (request.id != "watched") return endless("word ")(request);
    std::vector<std::string> words;
    for (int i = 0; i < kNumEvents; ++i) words.push_back(fmt::format("{} ", i));
    return answer_events(words);
  };
  engine->step_microseconds = 200;
  start();
  HttpClient watched = connect();
  watched.send(chat_request({{"stream", true}, {"rid", "watched"}}));
  ASSERT_TRUE(watched.read_until("0 "));

  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed): the same run every time
  const std::string streamed = chat_request({{"stream", true}});
  const std::string whole = chat_request({{"n", 3}});
  for (int i = 0; i < 1000; ++i) {
    HttpClient client = connect();
    const std::string& request = random() % 2 == 0 ? streamed : whole;
    const bool sends_all = random() % 2 == 0;
    client.send(request.substr(0, sends_all ? request.size() : random() % request.size()));
    if (sends_all && &request == &streamed && random() % 2 == 0) client.read_until("word ");
    client.leave(random());
  }
  const Reply reply = watched.read_reply();
  EXPECT_TRUE(reply.complete);
  std::string text;
  for (const std::string& event : reply.events()) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event);
    if (chunk["choices"].empty()) continue;
    text += chunk["choices"][0]["delta"].value("content", "");
  }
  std::string expected;
  for (int i = 0; i < kNumEvents; ++i) expected += fmt::format("{} ", i);
  EXPECT_EQ(text, expected);
  expect_unharmed();
}

TEST_F(HostileClientsTest, ReadersThatStopReadingAreCutAndDelayNoOtherClient) {
  options.http.write_timeout_seconds = 0.5;
  options.http.max_outbox_bytes = 4096;
  engine->script = endless(std::string(4096, 'x'));
  start();
  std::vector<std::unique_ptr<HttpClient>> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(std::make_unique<HttpClient>(server->port(), 4096));
    silent.back()->send(chat_request({{"stream", true}}));
  }
  ASSERT_TRUE(eventually([this] { return engine->submitted().size() == 20; }));
  EXPECT_EQ(post(kChat, chat_body({{"rid", kEnds}})).status, 200);
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
  expect_unharmed();
}

}  // namespace
}  // namespace heddle::server
