// SPDX-License-Identifier: Apache-2.0
#include "server/http/response_writer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <gtest/gtest.h>

#include "server/http_client.h"

namespace heddle::server {
namespace {

using Seconds = std::chrono::seconds;

TEST(WriteProgressTest, AClientThatTakesSomethingInTimeIsNeverGivenUp) {
  WriteProgress progress(Seconds(60));
  IoClock::time_point now{};
  progress.begin(now, 0);
  for (int64_t taken = 1; taken <= 100; ++taken) {  // an hour and more for one message
    now += Seconds(59);
    EXPECT_GT(progress.time_left(now, taken).count(), 0) << taken;
  }
}

TEST(WriteProgressTest, AClientThatTakesNothingIsGivenUpAfterTheLimit) {
  WriteProgress progress(Seconds(60));
  IoClock::time_point now{};
  progress.begin(now, 1000);
  EXPECT_EQ(progress.time_left(now + Seconds(20), 1000), Seconds(40));
  EXPECT_EQ(progress.time_left(now + Seconds(50), 1500), Seconds(60)) << "it took something";
  EXPECT_EQ(progress.time_left(now + Seconds(110), 1500), Seconds(0));
  progress.begin(now + Seconds(500), 1500);
  EXPECT_EQ(progress.time_left(now + Seconds(501), 1500), Seconds(59)) << "a new write begins anew";
}

// A writer on a connection whose other end is a client, and a loop that is run turn by turn.
class ResponseWriterTest : public ::testing::Test {
 protected:
  using tcp = boost::asio::ip::tcp;

  ResponseWriterTest() {
    tcp::acceptor acceptor(io_, {boost::asio::ip::address_v4::loopback(), 0});
    client_.emplace(acceptor.local_endpoint().port());
    socket_ = acceptor.accept();
    socket_.non_blocking(true);
    writer_.emplace(socket_, 3600);
  }

  void spawn(std::function<boost::asio::awaitable<bool>()> write) {
    boost::asio::co_spawn(io_, std::move(write),
                          [this](const std::exception_ptr&, bool sent) { sent_ = sent; });
  }

  // Until the write has ended, with a reader that takes all there is.
  void run() {
    while (!sent_) io_.run_one();
    EXPECT_TRUE(*sent_);
    socket_.close();
  }

  boost::asio::io_context io_{1};
  ByteSocket socket_{io_};
  std::optional<HttpClient> client_;
  std::optional<ResponseWriter> writer_;
  std::optional<bool> sent_;
};

TEST_F(ResponseWriterTest, ATurnPassesABoundedNumberOfBytes) {
  HttpResponse response{.headers = {}, .body = std::string(20 << 20, 'x')};
  spawn([&]() -> boost::asio::awaitable<bool> {
    co_return co_await writer_->send(std::move(response), {}, /*keep_alive=*/true);
  });
  Reply reply;
  std::thread reader([&] { reply = client_->read_reply(); });
  int64_t most = 0;
  while (!sent_) {
    const int64_t before = writer_->bytes_sent();
    io_.run_one();
    most = std::max(most, writer_->bytes_sent() - before);
  }
  reader.join();
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(reply.body.size(), 20u << 20);
  EXPECT_GT(most, 0);
  EXPECT_LE(most, static_cast<int64_t>(kMaxWriteBytes));
}

TEST_F(ResponseWriterTest, PiecesAreChunksAndTheHeadComesWithTheFirst) {
  spawn([&]() -> boost::asio::awaitable<bool> {
    writer_->open({.content_type = "text/a", .headers = {{"X-One", "1"}}, .body = {}},
                  {{"X-Two", "2"}}, /*keep_alive=*/true);
    EXPECT_EQ(writer_->bytes_sent(), 0);
    co_return co_await writer_->send_piece("abc", false) &&
        co_await writer_->send_piece(std::string(17, 'd'), false) &&
        co_await writer_->send_piece("", true);
  });
  run();
  ASSERT_TRUE(client_->read_until("0\r\n\r\n"));
  const std::string& text = client_->pending();
  EXPECT_TRUE(text.starts_with("HTTP/1.1 200 OK\r\nDate: ")) << text;
  EXPECT_TRUE(
      text.ends_with(" GMT\r\nContent-Type: text/a\r\nTransfer-Encoding: chunked\r\n"
                     "X-One: 1\r\nX-Two: 2\r\n\r\n"
                     "3\r\nabc\r\n11\r\nddddddddddddddddd\r\n0\r\n\r\n"))
      << text;
  EXPECT_EQ(writer_->bytes_sent(), static_cast<int64_t>(text.size()));
}

// Short pieces go out at once until the client's buffers are full, and then as it reads.
TEST_F(ResponseWriterTest, ShortPiecesArriveWholeAndInOrderWhateverTheClientTakes) {
  std::string expected;
  spawn([&]() -> boost::asio::awaitable<bool> {
    writer_->open({.headers = {}, .body = {}}, {}, /*keep_alive=*/true);
    for (int i = 0; i < 3000; ++i) {
      const std::string piece =
          std::to_string(i) + std::string(static_cast<size_t>(i * 7919 % 16000), 'x') + "\n";
      expected += piece;
      if (!co_await writer_->send_piece(piece, i == 2999)) co_return false;
    }
    co_return true;
  });
  while (!sent_ && io_.poll_one() > 0) {
  }
  EXPECT_FALSE(sent_) << "more than the buffers hold";
  Reply reply;
  std::thread reader([&] { reply = client_->read_reply(); });
  run();
  reader.join();
  EXPECT_TRUE(reply.complete);
  EXPECT_TRUE(reply.body == expected);
  EXPECT_GT(writer_->bytes_sent(), static_cast<int64_t>(expected.size()));
}

// Pieces that are sent at once, until the system takes no more, and those behind them.
TEST_F(ResponseWriterTest, PiecesThatAreSentAtOnceArriveInOrderWithWhatIsLeftOver) {
  writer_->begin(11, /*head_only=*/false);
  writer_->open({.headers = {}, .body = {}}, {}, /*keep_alive=*/false);
  std::string expected;
  const auto piece = [&expected](size_t size) {
    std::string text(size, static_cast<char>('a' + expected.size() % 26));
    expected += text;
    return text;
  };
  int64_t num_sent = 0;
  while (writer_->send_piece_now(piece(10'000))) ++num_sent;
  EXPECT_GT(num_sent, 3);
  EXPECT_TRUE(writer_->left_over());
  std::thread reader([&] {
    const Reply reply = client_->read_reply();
    EXPECT_TRUE(reply.complete);
    EXPECT_EQ(reply.body, expected);
  });
  const std::string behind = piece(50'000);
  spawn([&]() -> boost::asio::awaitable<bool> {
    co_return co_await writer_->send_piece({}, false) && !writer_->left_over() &&
        co_await writer_->send_piece(behind, true);
  });
  run();
  reader.join();
}

TEST_F(ResponseWriterTest, AFailureOfAPieceSentAtOnceIsTheNextOnes) {
  writer_->begin(11, /*head_only=*/false);
  writer_->open({.headers = {}, .body = {}}, {}, /*keep_alive=*/false);
  EXPECT_TRUE(writer_->send_piece_now("a"));
  boost::system::error_code ignored;
  socket_.close(ignored);
  EXPECT_FALSE(writer_->send_piece_now("b"));
  EXPECT_TRUE(writer_->left_over());
  spawn(
      [&]() -> boost::asio::awaitable<bool> { co_return co_await writer_->send_piece("c", true); });
  while (!sent_) io_.run_one();
  EXPECT_FALSE(*sent_);
}

TEST_F(ResponseWriterTest, AClientThatLeftEndsShortPieces) {
  client_->reset();
  spawn([&]() -> boost::asio::awaitable<bool> {
    writer_->open({.headers = {}, .body = {}}, {}, /*keep_alive=*/true);
    bool alive = true;
    for (int i = 0; alive && i < 100000; ++i) alive = co_await writer_->send_piece("abc", false);
    co_return alive;
  });
  while (!sent_) io_.run_one();
  EXPECT_FALSE(*sent_);
}

TEST_F(ResponseWriterTest, TheAnswerToHeadHasNoBody) {
  spawn([&]() -> boost::asio::awaitable<bool> {
    writer_->begin(/*http_version=*/11, /*head_only=*/true);
    writer_->open({.headers = {}, .body = {}}, {}, /*keep_alive=*/true);
    co_return co_await writer_->send_piece("abc", false) && co_await writer_->send_piece("d", true);
  });
  run();
  EXPECT_EQ(client_->read_reply(/*head_only=*/true).headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(client_->pending(), "");
  EXPECT_EQ(client_->receive(), "");
}

TEST_F(ResponseWriterTest, OldHttpHasNoChunks) {
  spawn([&]() -> boost::asio::awaitable<bool> {
    writer_->begin(/*http_version=*/10, /*head_only=*/false);
    writer_->open({.headers = {}, .body = {}}, {}, /*keep_alive=*/true);
    co_return co_await writer_->send_piece("abc", false) && co_await writer_->send_piece("d", true);
  });
  run();
  const Reply reply = client_->read_reply();
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_FALSE(reply.headers.contains("transfer-encoding"));
  EXPECT_EQ(reply.body, "abcd");
}

}  // namespace
}  // namespace heddle::server
