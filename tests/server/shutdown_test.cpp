// SPDX-License-Identifier: Apache-2.0
// Stopping while clients are at every stage of a connection: a client that has connected gets an
// answer, and no reset.
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "core/log.h"
#include "server/http/http_server.h"
#include "server/http_client.h"

namespace heddle::server {
namespace {

// Answers everything, and does something else on the I/O thread first, once.
class BusyHandler final : public HttpHandler {
 public:
  std::function<void()> meanwhile;

  Admission on_head(HttpRequest&, HttpHeaders&) override { return {}; }

  void on_request(std::shared_ptr<Exchange> exchange) override {
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    exchange->respond({.headers = {}, .body = "here"});
  }

  HttpResponse on_transport_error(const HttpRequest*, int status, std::string_view) override {
    return {.status = status, .headers = {}, .body = "error"};
  }

  void on_answered(const HttpRequest*, const Answered&) override {}
};

class ShutdownTest : public ::testing::Test {
 protected:
  ShutdownTest() {
    set_log_level(LogLevel::kError);
    HttpServerOptions options;
    options.port = 0;
    options.first_request_seconds = 120;
    server_ = HttpServer::listen(options).value();
  }

  ~ShutdownTest() override {
    server_.reset();
    set_log_level(LogLevel::kInfo);
  }

  // Runs `meanwhile` on the I/O thread, which so accepts and reads nothing, and begins the server's
  // stop before that thread goes on.
  void stop_during(std::function<void()> meanwhile) {
    handler_.meanwhile = [this, act = std::move(meanwhile)] {
      act();
      server_->begin_stop(120);
    };
    server_->start(handler_);
    HttpClient first(server_->port());
    EXPECT_EQ(first.call("GET", "/").status, 200);
    first.close();
  }

  static void expect_last_answer(HttpClient& client) {
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_TRUE(reply.complete);
    EXPECT_EQ(reply.body, "here");
    EXPECT_EQ(reply.headers.at("connection"), "close");
    EXPECT_TRUE(client.ends_in_order());
    client.close();
  }

  BusyHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ShutdownTest, ConnectionsThatAreNotAcceptedYetAreAnswered) {
  std::deque<HttpClient> clients;
  stop_during([&] {
    for (int i = 0; i < 100; ++i) {
      HttpClient& client = clients.emplace_back(server_->port());
      EXPECT_TRUE(client.connected());
      EXPECT_TRUE(client.send_request("GET", "/"));
    }
  });
  for (HttpClient& client : clients) expect_last_answer(client);
  server_->stop(120);
  EXPECT_FALSE(HttpClient(server_->port()).connected());
}

TEST_F(ShutdownTest, ANewConnectionMaySendItsFirstRequest) {
  std::deque<HttpClient> clients;
  stop_during([&] {
    for (int i = 0; i < 20; ++i) clients.emplace_back(server_->port());
  });
  for (HttpClient& client : clients) {
    EXPECT_TRUE(client.send_request("GET", "/"));
    expect_last_answer(client);
  }
  server_->stop(120);
}

TEST_F(ShutdownTest, AKeptConnectionIsAnsweredIfItsNextRequestIsThere) {
  std::deque<HttpClient> kept;
  server_->start(handler_);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(kept.emplace_back(server_->port()).call("GET", "/").status, 200);
  }
  handler_.meanwhile = [&] {
    for (HttpClient& client : kept) EXPECT_TRUE(client.send_request("GET", "/"));
    server_->begin_stop(120);
  };
  HttpClient first(server_->port());
  EXPECT_EQ(first.call("GET", "/").status, 200);
  first.close();
  for (HttpClient& client : kept) expect_last_answer(client);
  server_->stop(120);
}

TEST_F(ShutdownTest, AnIdleConnectionEndsInOrder) {
  server_->start(handler_);
  HttpClient idle(server_->port());
  EXPECT_EQ(idle.call("GET", "/").status, 200);
  server_->begin_stop(120);
  EXPECT_TRUE(idle.ends_in_order());
  EXPECT_TRUE(idle.send_request("GET", "/")) << "crosses with the server's goodbye";
  idle.close();
  server_->stop(120);
}

}  // namespace
}  // namespace heddle::server
