// SPDX-License-Identifier: Apache-2.0
#include "server/http/connection_exchange.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

class ConnectionExchangeTest : public ::testing::Test {
 protected:
  // Takes and sends the next piece.
  std::string send_piece() {
    const auto piece = exchange_.take_piece();
    exchange_.piece_sent();
    return piece.bytes;
  }

  int num_changes_ = 0;
  ConnectionExchange exchange_{HttpRequest(), /*max_outbox_bytes=*/100'000,
                               [this] { ++num_changes_; }};
};

TEST_F(ConnectionExchangeTest, SmallWritesShareAPieceAndLargeOnesStayWhole) {
  exchange_.open_stream(StreamFormat::kEvents);
  EXPECT_FALSE(exchange_.has_piece());
  EXPECT_FALSE(exchange_.committed());
  exchange_.write("a");
  exchange_.write("b");
  exchange_.write(std::string(1 << 20, 'c'));
  exchange_.write("d");
  EXPECT_TRUE(exchange_.committed());
  EXPECT_EQ(send_piece(), "ab");
  EXPECT_EQ(send_piece(), std::string(1 << 20, 'c'));
  EXPECT_EQ(send_piece(), "d");
  EXPECT_FALSE(exchange_.has_piece());
  exchange_.finish();
  ASSERT_TRUE(exchange_.has_piece());
  EXPECT_TRUE(exchange_.take_piece().last);
  EXPECT_FALSE(exchange_.has_piece());
}

TEST_F(ConnectionExchangeTest, OnlyAPieceByItselfIsAllThereIs) {
  exchange_.open_stream(StreamFormat::kEvents);
  exchange_.write("a");
  EXPECT_FALSE(exchange_.has_all_there_is()) << "more may follow";
  exchange_.writes_all_there_is = true;
  EXPECT_TRUE(exchange_.has_all_there_is());
  exchange_.write(std::string(1 << 16, 'b'));
  EXPECT_FALSE(exchange_.has_all_there_is()) << "these are two";
  send_piece();
  EXPECT_TRUE(exchange_.has_all_there_is());
  exchange_.finish();
  EXPECT_FALSE(exchange_.has_all_there_is()) << "this is the last";
}

TEST_F(ConnectionExchangeTest, AWriterIsCalledAgainWhenHalfIsSent) {
  int num_calls = 0;
  exchange_.on_drained = [&] { ++num_calls; };
  exchange_.open_body({.headers = {}, .body = {}});
  exchange_.write(std::string(70'000, 'a'));
  EXPECT_FALSE(exchange_.backed_up());
  exchange_.write(std::string(70'000, 'b'));
  EXPECT_TRUE(exchange_.backed_up());
  exchange_.write("c") /* is taken all the same */;
  auto piece = exchange_.take_piece();
  EXPECT_TRUE(exchange_.backed_up()) << "a piece that is taken is not sent";
  exchange_.piece_sent();
  EXPECT_TRUE(exchange_.backed_up());
  EXPECT_EQ(num_calls, 0);
  piece = exchange_.take_piece();
  exchange_.piece_sent();
  EXPECT_FALSE(exchange_.backed_up());
  EXPECT_EQ(num_calls, 1);
  EXPECT_EQ(send_piece(), "c");
  EXPECT_EQ(num_calls, 1);
}

TEST_F(ConnectionExchangeTest, AWriterThatWaitsIsCalledWhenTheClientLeaves) {
  std::string calls;
  exchange_.on_gone = [&] { calls += "gone "; };
  exchange_.on_drained = [&] { calls += exchange_.gone() ? "drained" : "too early"; };
  exchange_.open_body({.headers = {}, .body = {}});
  exchange_.write(std::string(200'000, 'a'));
  exchange_.mark_gone();
  EXPECT_EQ(calls, "gone drained");
  exchange_.mark_gone();
  EXPECT_EQ(calls, "gone drained") << "once";
  exchange_.write("b");
  EXPECT_FALSE(exchange_.has_piece()) << "the client has left";
}

TEST_F(ConnectionExchangeTest, AnErrorTakesThePlaceOfAStreamThatHasNotBegun) {
  exchange_.open_stream(StreamFormat::kEvents);
  exchange_.respond({.status = 500, .headers = {}, .body = "error"});
  exchange_.write("late");
  EXPECT_FALSE(exchange_.has_piece());
  EXPECT_EQ(exchange_.take_response()->status, 500);
}

}  // namespace
}  // namespace heddle::server
