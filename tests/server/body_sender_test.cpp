// SPDX-License-Identifier: Apache-2.0
// Bodies that are made piece by piece while a real server sends them.
#include "server/http/body_sender.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "core/log.h"
#include "server/http/http_server.h"
#include "server/http/worker_pool.h"
#include "server/http_client.h"

namespace heddle::server {
namespace {

// Answers every request with a body from a source.
class SourceHandler final : public HttpHandler {
 public:
  std::function<std::unique_ptr<BodySource>()> make_source;
  BodyThreads threads;
  std::atomic<int> last_status{0};
  std::thread::id io_thread;

  Admission on_head(HttpRequest&, HttpHeaders&) override { return {}; }

  void on_request(std::shared_ptr<Exchange> exchange) override {
    io_thread = std::this_thread::get_id();
    exchange->open_body({.content_type = "text/plain", .headers = {}, .body = {}});
    send_body(threads, std::move(exchange), make_source());
  }

  HttpResponse on_transport_error(const HttpRequest*, int status, std::string_view) override {
    return {.status = status, .headers = {}, .body = "error"};
  }

  void on_answered(const HttpRequest*, const Answered& answered) override {
    last_status = answered.status;
  }
};

class FunctionSource final : public BodySource {
 public:
  FunctionSource(std::function<bool(std::string&)> next, std::atomic<int>* num_destroyed)
      : next_(std::move(next)), num_destroyed_(num_destroyed) {}

  ~FunctionSource() override { ++*num_destroyed_; }

  bool next(std::string& piece) override { return next_(piece); }

 private:
  std::function<bool(std::string&)> next_;
  std::atomic<int>* num_destroyed_;
};

class BodySenderTest : public ::testing::Test {
 protected:
  BodySenderTest() {
    set_log_level(LogLevel::kOff);
    HttpServerOptions options;
    options.port = 0;
    server_ = HttpServer::listen(options).value();
    handler_.threads = {
        .run_on_worker =
            [this](std::function<void()> work) {
              return workers_.submit(WorkSize::kSmall, std::move(work));
            },
        .post = [this](std::function<void()> work) { server_->post(std::move(work)); }};
    server_->start(handler_);
  }

  ~BodySenderTest() override {
    server_->stop(120);
    set_log_level(LogLevel::kInfo);
  }

  // Makes each body with `next`.
  void serve(std::function<bool(std::string&)> next) {
    handler_.make_source = [this, next = std::move(next)] {
      return std::make_unique<FunctionSource>(next, &num_destroyed_);
    };
  }

  std::atomic<int> num_destroyed_{0};
  SourceHandler handler_;
  std::unique_ptr<HttpServer> server_;
  WorkerPool workers_{2, 100};  // ends first: its work posts to the server
};

TEST_F(BodySenderTest, ABodyIsMadeOnWorkersAndNoFasterThanItIsRead) {
  constexpr int64_t kBytes = 96 << 20;
  // The outbox and a piece, and the two sockets' buffers: Linux lets them grow to 4 and 6 MiB.
  constexpr int64_t kMaxAhead = 16 << 20;
  std::atomic<int64_t> num_made{0};
  std::atomic<int64_t> num_read{0};
  std::atomic<int64_t> most_ahead{0};
  std::atomic<bool> on_io_thread{false};
  serve([&](std::string& piece) {
    if (std::this_thread::get_id() == handler_.io_thread) on_io_thread = true;
    piece.assign(kBodyPieceBytes, 'x');
    num_made += kBodyPieceBytes;
    most_ahead = std::max(most_ahead.load(), num_made - num_read);
    return num_made < kBytes;
  });
  HttpClient client(server_->port());
  client.send_request("GET", "/");
  ASSERT_TRUE(client.read_until("\r\n\r\n"));
  for (std::string bytes; num_made < kBytes; num_read += static_cast<int64_t>(bytes.size())) {
    bytes = client.receive();
    ASSERT_FALSE(bytes.empty());
  }
  ASSERT_TRUE(client.read_until("\r\n0\r\n\r\n"));
  EXPECT_FALSE(on_io_thread);
  EXPECT_LE(most_ahead, kMaxAhead);
  EXPECT_EQ(num_destroyed_, 1);
}

TEST_F(BodySenderTest, TheBodyArrivesWholeAndTheConnectionIsKept) {
  std::atomic<int> number{0};
  serve([&](std::string& piece) {
    if (number != 1) piece = std::string(100'000, static_cast<char>('a' + number));
    return ++number < 3;
  });
  HttpClient client(server_->port());
  for (int i = 0; i < 2; ++i) {
    number = 0;
    const Reply reply = client.call("GET", "/");
    EXPECT_TRUE(reply.complete);
    EXPECT_EQ(reply.headers.at("content-type"), "text/plain");
    EXPECT_EQ(reply.body, std::string(100'000, 'a') + std::string(100'000, 'c'));
  }
  EXPECT_EQ(handler_.last_status, 200);
}

TEST_F(BodySenderTest, NothingIsMadeForAClientThatHasLeft) {
  serve([](std::string& piece) {
    piece.assign(kBodyPieceBytes, 'x');
    return true;  // without end
  });
  HttpClient client(server_->port());
  client.send_request("GET", "/");
  ASSERT_TRUE(client.read_until("xxx"));
  client.close();
  while (num_destroyed_ == 0) std::this_thread::yield();
  EXPECT_EQ(num_destroyed_, 1);
}

TEST_F(BodySenderTest, ABodyThatCannotBeMadeIsBrokenOff) {
  std::atomic<int> number{0};
  serve([&](std::string& piece) {
    if (++number == 2) throw std::bad_alloc();
    piece = "begun";
    return true;
  });
  HttpClient client(server_->port());
  const Reply reply = client.call("GET", "/");
  EXPECT_EQ(reply.status, 200);
  EXPECT_FALSE(reply.complete);
  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(handler_.last_status, 500);
}

TEST_F(BodySenderTest, WithoutRoomOnTheWorkersThePiecesAreMadeAnyway) {
  handler_.threads.run_on_worker = [](const std::function<void()>&) { return false; };
  std::atomic<int> number{0};
  serve([&](std::string& piece) {
    piece = "a";
    return ++number < 1000;
  });
  EXPECT_EQ(HttpClient(server_->port()).call("GET", "/").body, std::string(1000, 'a'));
}

}  // namespace
}  // namespace heddle::server
