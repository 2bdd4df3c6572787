// SPDX-License-Identifier: Apache-2.0
// Stopping while clients are at every stage of a connection: whoever has connected gets an answer,
// and nobody a reset.
#include <cerrno>
#include <deque>
#include <future>
#include <string_view>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "server/http_client.h"
#include "server/http_server.h"
#include "server/listen_filter.h"

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

  HttpResponse on_transport_error(int status, std::string_view) override {
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

  // Runs `meanwhile` on the I/O thread, which so accepts and reads nothing, and asks the server to
  // stop before it goes on. How the stop and the clients' bytes meet afterwards is up to chance;
  // what the clients see must not be.
  void stop_during(std::function<void()> meanwhile) {
    handler_.meanwhile = [this, act = std::move(meanwhile)] {
      act();
      stopped_ = std::async(std::launch::async, [this] { server_->stop(120); });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
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
  std::future<void> stopped_;
};

TEST_F(ShutdownTest, WhoHasConnectedIsAnsweredAlsoWhenNobodyHasAcceptedYet) {
  std::deque<HttpClient> clients;
  stop_during([&] {
    for (int i = 0; i < 100; ++i) {
      HttpClient& client = clients.emplace_back(server_->port());
      EXPECT_TRUE(client.connected());
      EXPECT_TRUE(client.send_request("GET", "/"));
    }
  });
  for (HttpClient& client : clients) expect_last_answer(client);
  stopped_.get();
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
  stopped_.get();
}

TEST_F(ShutdownTest, AKeptConnectionIsAnsweredIfItsNextRequestIsThere) {
  std::deque<HttpClient> kept;
  server_->start(handler_);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(kept.emplace_back(server_->port()).call("GET", "/").status, 200);
  }
  handler_.meanwhile = [&] {
    for (HttpClient& client : kept) EXPECT_TRUE(client.send_request("GET", "/"));
    stopped_ = std::async(std::launch::async, [this] { server_->stop(120); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  HttpClient first(server_->port());
  EXPECT_EQ(first.call("GET", "/").status, 200);
  first.close();
  for (HttpClient& client : kept) expect_last_answer(client);
  stopped_.get();
}

TEST_F(ShutdownTest, NobodyBeginsToConnectWhileThePortCloses) {
  server_->start(handler_);
  HttpClient idle(server_->port());
  EXPECT_EQ(idle.call("GET", "/").status, 200);
  stopped_ = std::async(std::launch::async, [this] { server_->stop(120); });
  EXPECT_TRUE(idle.ends_in_order());  // the stop has begun, and the port is still open
  EXPECT_FALSE(HttpClient(server_->port()).connected());
  idle.close();
  stopped_.get();
}

TEST(ListenFilterTest, KeepsWhoHasConnectedAndDropsWhoBegins) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener, name, size), 0);
  ASSERT_EQ(::listen(listener, 8), 0);
  ASSERT_EQ(::getsockname(listener, name, &size), 0);
  HttpClient early(ntohs(address.sin_port));
  ASSERT_TRUE(early.connected());

  drop_new_connections(listener);
  EXPECT_TRUE(early.send("early"));
  const int late = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  EXPECT_EQ(::connect(late, name, size), -1);
  EXPECT_EQ(errno, EINPROGRESS);
  pollfd connected{.fd = late, .events = POLLOUT, .revents = 0};
  EXPECT_EQ(::poll(&connected, 1, 100), 0) << "nobody answers";

  const int accepted = ::accept(listener, nullptr, nullptr);
  ASSERT_GE(accepted, 0);
  char text[5];
  EXPECT_EQ(::recv(accepted, text, sizeof(text), MSG_WAITALL), 5);
  EXPECT_EQ(std::string_view(text, 5), "early");
  ::close(listener);
  EXPECT_EQ(::poll(&connected, 1, 60'000), 1);  // its next attempt finds the port closed
  int error = 0;
  size = sizeof(error);
  ASSERT_EQ(::getsockopt(late, SOL_SOCKET, SO_ERROR, &error, &size), 0);
  EXPECT_EQ(error, ECONNREFUSED);
  ::close(late);
  ::close(accepted);
}

TEST_F(ShutdownTest, AnIdleConnectionEndsInOrder) {
  server_->start(handler_);
  HttpClient idle(server_->port());
  EXPECT_EQ(idle.call("GET", "/").status, 200);
  stopped_ = std::async(std::launch::async, [this] { server_->stop(120); });
  EXPECT_TRUE(idle.ends_in_order());
  EXPECT_TRUE(idle.send_request("GET", "/")) << "crosses with the server's goodbye";
  idle.close();
  stopped_.get();
}

}  // namespace
}  // namespace heddle::server
