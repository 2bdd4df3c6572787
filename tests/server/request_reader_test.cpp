// SPDX-License-Identifier: Apache-2.0
#include "server/http/request_reader.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <gtest/gtest.h>

#include "server/http_client.h"

namespace heddle::server {
namespace {

TEST(DeadlineTest, IsNotCalledOnceItWasStoppedSetAgainOrDestroyed) {
  boost::asio::io_context io(1);
  std::string calls;
  Deadline deadline(io.get_executor());
  deadline.start(IoClock::duration::zero(), [&] { calls += "first"; });
  deadline.start(IoClock::duration::zero(), [&] { calls += "second"; });
  io.run();
  EXPECT_EQ(calls, "second");
  io.restart();
  deadline.start(IoClock::duration::zero(), [&] { calls += "stopped"; });
  deadline.stop();
  {
    Deadline other(io.get_executor());
    other.start(IoClock::duration::zero(), [&] { calls += "destroyed"; });
  }
  io.run();
  EXPECT_EQ(calls, "second");
}

// A reader of a connection whose other end is a client.
class RequestReaderTest : public ::testing::Test {
 protected:
  using tcp = boost::asio::ip::tcp;

  RequestReaderTest() { reconnect(); }

  void reconnect() {
    tcp::acceptor acceptor(io_, {boost::asio::ip::address_v4::loopback(), 0});
    client_.emplace(acceptor.local_endpoint().port());
    socket_ = acceptor.accept();
    socket_.non_blocking(true);
    reader_.emplace(socket_, options_);
  }

  // Runs a coroutine to its end.
  template <typename Value>
  Value run(std::function<boost::asio::awaitable<Value>()> work) {
    std::optional<Value> result;
    boost::asio::co_spawn(io_, std::move(work), [&](const std::exception_ptr&, Value value) {
      result.emplace(std::move(value));
    });
    while (!result) io_.run_one();
    return *result;
  }

  std::optional<ReadFailure> read_head() {
    return run<std::optional<ReadFailure>>([this] { return reader_->read_head(); });
  }

  bool await_request() {
    return run<bool>([this] { return reader_->await_request(3600); });
  }

  HttpServerOptions options_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};  // or the loop would end with each coroutine
  ByteSocket socket_{io_};
  std::optional<HttpClient> client_;
  std::optional<RequestReader> reader_;
};

TEST_F(RequestReaderTest, RequestsAreReadOneAfterAnother) {
  client_->send(
      "POST http://host/a%20b?x=1 HTTP/1.1\r\nHost: other\r\nA-Name: value\r\nContent-Length: "
      "3\r\n\r\nabc"
      "GET /second HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(await_request());
  EXPECT_FALSE(read_head());
  const HttpRequest first = reader_->head();
  EXPECT_EQ(first.method, "POST");
  EXPECT_EQ(first.path, "/a b");
  EXPECT_EQ(first.query, "x=1");
  EXPECT_EQ(first.header("a-name"), "value");
  EXPECT_EQ(first.header("host"), "host") << "the target's";
  EXPECT_TRUE(reader_->keep_alive());
  EXPECT_EQ(reader_->announced_bytes(), 3u);
  BodyLease lease(std::make_shared<BodyBudget>(100));
  EXPECT_FALSE(run<std::optional<ReadFailure>>([&] { return reader_->read_body(100, &lease); }));
  EXPECT_EQ(reader_->take_body(), "abc");
  EXPECT_TRUE(await_request());
  EXPECT_FALSE(read_head());
  EXPECT_EQ(reader_->head().path, "/second");
  EXPECT_EQ(reader_->http_version(), 10u);
  EXPECT_TRUE(reader_->body_is_read());
}

TEST_F(RequestReaderTest, EmptyLinesBeforeARequestAreNoPartOfIt) {
  const std::string request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  for (const std::string lines : {"\r\n", "\r\n\r\n\r\n"}) {
    client_->send(lines + request + lines + request);
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(await_request());
      EXPECT_FALSE(read_head());
    }
  }
  client_->send("\r\n\r");
  std::optional<bool> came;
  boost::asio::co_spawn(io_, reader_->await_request(3600),
                        [&](const std::exception_ptr&, bool value) { came = value; });
  for (int turn = 0; turn < 100; ++turn) io_.poll_one();
  EXPECT_FALSE(came) << "no request has begun";
  client_->send("\n" + request);
  while (!came) io_.run_one();
  EXPECT_FALSE(read_head());
  for (const std::string mark : {"\n", "\r\r\n", " \r\n"}) {
    reconnect();
    client_->send(mark + request);
    EXPECT_TRUE(await_request());
    const auto failure = read_head();
    EXPECT_EQ(failure ? failure->status : 200, 400) << "not an empty line";
  }
}

// Lines of the body that begin with blanks are data and not folded headers.
TEST_F(RequestReaderTest, ATrailerHasNoFoldedLines) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::pair<const char*, int> trailers[] = {
      {"", 200}, {"X: 1\r\n", 200}, {"X: 1\r\n 2\r\n", 400}, {"X:\r\n\t1\r\nY: 2\r\n", 400}};
  for (const std::string chunks :
       {"", "b\r\na\r\n b\r\n c\r\n\r\n", "3\r\na\r\n\r\n8\r\n b\r\n c\r\n\r\n"}) {
    for (const auto& [trailer, status] : trailers) {
      reconnect();
      client_->send(head + chunks + "0;e=1\r\n" + trailer + "\r\n");
      EXPECT_TRUE(await_request());
      EXPECT_FALSE(read_head());
      BodyLease lease(std::make_shared<BodyBudget>(100));
      const auto failure =
          run<std::optional<ReadFailure>>([&] { return reader_->read_body(100, &lease); });
      EXPECT_EQ(failure ? failure->status : 200, status) << chunks << trailer;
    }
  }
}

TEST_F(RequestReaderTest, AFailureSaysHowToAnswerIt) {
  client_->send("no HTTP\r\n\r\n");
  const auto malformed = read_head();
  ASSERT_TRUE(malformed);
  EXPECT_EQ(malformed->status, 400);
}

TEST_F(RequestReaderTest, FieldsThatComeOneByOneCountTogether) {
  std::optional<ReadFailure> failure;
  bool ended = false;
  boost::asio::co_spawn(io_, reader_->read_head(),
                        [&](const std::exception_ptr&, std::optional<ReadFailure> value) {
                          failure = std::move(value);
                          ended = true;
                        });
  // Each write ends with the first byte of the next field, which ends the one before it.
  client_->send("GET / HTTP/1.1\r\nA");
  io_.run_one();
  const std::string field = ": " + std::string(100, 'x') + "\r\nA";
  size_t num_bytes = 17;
  while (!ended && num_bytes < 1 << 20) {
    client_->send(field);
    num_bytes += field.size();
    io_.run_one();
    io_.poll();
  }
  EXPECT_LE(num_bytes, static_cast<size_t>(options_.max_header_bytes) + 1000);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->status, 431);
}

TEST_F(RequestReaderTest, AHeadMayBeAsLongAsTheLimit) {
  const auto limit = static_cast<size_t>(options_.max_header_bytes);
  const std::string begin = "GET / HTTP/1.1\r\nHost: a\r\nA: ";
  for (const size_t size : {limit, limit + 1}) {
    client_->send(begin + std::string(size - begin.size() - 4, 'x') + "\r\n\r\n");
    const auto failure = read_head();
    EXPECT_EQ(failure ? failure->status : 200, size == limit ? 200 : 431);
  }
}

TEST_F(RequestReaderTest, GivesNoAnswerWhenTheClientLeavesInTheMiddle) {
  client_->send("GET / HT");
  EXPECT_TRUE(await_request());
  client_->close();
  const auto failure = read_head();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->status, 0);
}

TEST_F(RequestReaderTest, AWaitEndsAtItsNewLimitAndTakesTheLastBytes) {
  std::optional<bool> came;
  boost::asio::co_spawn(io_, reader_->await_request(3600),
                        [&](const std::exception_ptr&, bool value) { came = value; });
  io_.poll();
  EXPECT_FALSE(came);
  client_->send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  reader_->limit_wait(0);
  while (!came) io_.run_one();
  EXPECT_TRUE(*came) << "bytes that came in the last moment count";
  EXPECT_FALSE(read_head());
  boost::asio::co_spawn(io_, reader_->await_request(3600),
                        [&](const std::exception_ptr&, bool value) { came = value; });
  came.reset();
  io_.poll();
  reader_->limit_wait(0);
  while (!came) io_.run_one();
  EXPECT_FALSE(*came);
}

TEST_F(RequestReaderTest, AWatchedClientIsGoneWhenItClosesItsSendingSide) {
  bool gone = false;
  reader_->watch(nullptr, [&] { gone = true; });
  client_->send("GET /ahead HTTP/1.1\r\nHost: a\r\n\r\n");
  io_.run_one();
  EXPECT_FALSE(gone);
  client_->shut_down_sending();
  while (!gone) io_.run_one();
  EXPECT_FALSE(read_head());
  EXPECT_EQ(reader_->head().path, "/ahead") << "it was read ahead";
}

TEST_F(RequestReaderTest, AClientFarAheadIsGoneOnlyByAReset) {
  bool gone = false;
  reader_->watch(nullptr, [&] { gone = true; });
  client_->send(std::string(200 << 10, 'x'));
  for (int turn = 0; turn < 100; ++turn) io_.poll_one();  // reads until it is full
  client_->shut_down_sending();
  for (int turn = 0; turn < 100; ++turn) io_.poll_one();
  EXPECT_FALSE(gone);
  client_->reset();
  while (!gone) io_.run_one();
}

TEST_F(RequestReaderTest, NothingIsReportedAfterWatching) {
  bool gone = false;
  reader_->watch(nullptr, [&] { gone = true; });
  reader_->stop_watching();
  client_->reset();
  io_.poll();
  EXPECT_FALSE(gone);
}

}  // namespace
}  // namespace heddle::server
