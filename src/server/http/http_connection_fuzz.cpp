// SPDX-License-Identifier: Apache-2.0
// Any bytes as those that a client sends over a connection. For all of them the server writes
// complete and well-formed answers, one for each request that it reports, keeps its limits, and
// lets go of the connection. The answers depend neither on how the bytes are cut nor on how fast
// the client reads.
//
// The first byte of an input is a digit that chooses the client (Client), the rest is sent. In it
// '|' ends a piece, and '^' stands for 8 KiB of 'x'. The path of a request chooses how it is
// answered (testing/echo_handler.h).
//
// An input has the same run every time: one thread turns the loop until nothing moves before the
// client acts again, and no time limit is short enough to end anything.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/none.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "core/check.h"
#include "server/http/http_connection.h"
#include "server/http/request_gate.h"
#include "server/http/testing/echo_handler.h"

namespace heddle::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using testing::EchoHandler;

constexpr double kNeverSeconds = 1e6;
constexpr size_t kLongRunBytes = 8 << 10;
constexpr size_t kMaxInputBytes = 112 << 10;  // more than any buffer holds
constexpr int kSmallBufferBytes = 4 << 10;
constexpr int kBrokenOff = 500;  // is reported of an answer that its maker cannot complete

// The digit '1' is 0 modulo their number.
enum class Client : uint8_t {
  kReads,         // 1: reads at once, and closes its sending side when all is answered
  kReadsLate,     // 2: takes nothing before it has sent all it can
  kLeaves,        // 3: closes its sending side behind its last byte
  kCloses,        // 4: closes its socket there
  kMeetsStop,     // 5: the server begins to stop after the first piece
  kMeetsEnd,      // 6: the server closes the connection there
  kIsTurnedAway,  // 7: there are too many connections
};
constexpr uint8_t kNumClients = 7;

// Limits that inputs of a few bytes reach, as far as there are options for them.
HttpServerOptions options_for_inputs() {
  HttpServerOptions options;
  options.max_header_bytes = 512;
  options.max_request_bytes = 80 << 10;
  options.max_held_body_bytes = BodyLease::kAlwaysTakenBytes;
  options.max_outbox_bytes = 16 << 10;
  options.header_timeout_seconds = kNeverSeconds;
  options.body_timeout_seconds = kNeverSeconds;
  options.write_timeout_seconds = kNeverSeconds;
  options.idle_timeout_seconds = kNeverSeconds;
  options.first_request_seconds = kNeverSeconds;
  options.linger_seconds = kNeverSeconds;
  options.stop_linger_seconds = kNeverSeconds;
  options.stream_keepalive_seconds = 0;
  return options;
}

struct Reply {
  unsigned status = 0;
  std::string text;  // header fields, less the date, and the body without its framing
  bool complete = false;
  bool keep_alive = false;

  bool operator==(const Reply&) const = default;
};

// Takes one answer off the front of `bytes`, and the 100 Continue before it. None: there is none.
std::optional<Reply> take_reply(std::string_view& bytes, bool head_only) {
  while (!bytes.empty()) {
    http::response_parser<http::string_body> parser;
    parser.body_limit(boost::none);
    parser.eager(true);
    parser.skip(head_only);
    boost::system::error_code error;
    while (!parser.is_done() && !bytes.empty() && !error) {
      bytes.remove_prefix(parser.put(asio::buffer(bytes), error));
    }
    if (error == http::error::need_more) bytes = {};
    HEDDLE_CHECK(!error || error == http::error::need_more);
    if (!parser.is_done()) parser.put_eof(error);
    if (!parser.is_header_done()) return Reply{};
    const auto& message = parser.get();
    if (message.result_int() == 100 && parser.is_done()) continue;
    Reply reply{.status = message.result_int(),
                .text = {},
                .complete = parser.is_done(),
                .keep_alive = parser.keep_alive()};
    for (const auto& field : message) {
      const std::string name = lower_case({field.name_string().data(), field.name_string().size()});
      HEDDLE_CHECK_EQ(message.count(field.name_string()), 1u);
      if (name == "date") continue;
      reply.text += name + ": ";
      reply.text.append(field.value().data(), field.value().size());
      reply.text += "\n";
    }
    reply.text += message.body();
    return reply;
  }
  return std::nullopt;
}

// All that came of one connection.
struct Transcript {
  std::vector<Reply> replies;
  bool ends_without_request = false;  // the last is to bytes that are no head
};

// One connection, from its first byte to its end.
class Conversation {
 public:
  Conversation(asio::io_context& io, RequestGate& gate, Client client)
      : io_(io), client_(client), handler_(post_to(io), gate, options_) {
    HEDDLE_CHECK(others_.grow_to(1));
    std::array<int, 2> ends{};
    HEDDLE_CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    socket_ = ends[1];
    if (client_ == Client::kReadsLate) {
      ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &kSmallBufferBytes, sizeof(kSmallBufferBytes));
    }
    auto connection = std::make_shared<Connection>(
        ByteSocket(io_, asio::generic::stream_protocol(AF_UNIX, 0), ends[0]), "unix", options_,
        handler_, budget_);
    connection_ = connection;
    auto work = client_ == Client::kIsTurnedAway
                    ? connection->turn_away(handler_.on_transport_error(nullptr, 503, "no room"))
                    : connection->run();
    asio::co_spawn(io_, std::move(work),
                   [connection = std::move(connection)](const std::exception_ptr& failure) {
                     HEDDLE_CHECK(!failure);
                   });
  }

  ~Conversation() {
    if (socket_ >= 0) ::close(socket_);
  }

  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  Transcript run(const std::vector<std::string>& pieces) {
    for (const std::string& piece : pieces) {
      send(piece);
      if (client_ == Client::kLeaves || client_ == Client::kCloses) continue;
      settle(client_ != Client::kReadsLate);
      if (&piece == &pieces.front()) meet_server();
    }
    leave();
    settle(/*reads=*/true);
    HEDDLE_CHECK(connection_.expired());
    HEDDLE_CHECK(io_.stopped());  // no timer and no call is left
    HEDDLE_CHECK_EQ(budget_->used_bytes.load(), 1);
    return check();
  }

 private:
  static std::function<void(std::function<void()>)> post_to(asio::io_context& io) {
    return [&io](std::function<void()> work) { asio::post(io, std::move(work)); };
  }

  // Sends as far as the server listens.
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count =
          ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) {
        bytes.remove_prefix(static_cast<size_t>(count));
      } else if (errno == EAGAIN) {  // a server that writes may wait for its reader
        HEDDLE_CHECK(settle(client_ != Client::kReadsLate) || settle(/*reads=*/true));
      } else {
        return;
      }
    }
  }

  // Turns the loop, and reads what comes, until nothing moves. False: nothing did.
  bool settle(bool reads) {
    bool moved = false;
    for (bool again = true; again; moved |= again) {
      if (io_.stopped()) io_.restart();
      again = io_.poll() > 0;
      if (reads) again |= receive();
    }
    return moved;
  }

  bool receive() {
    std::array<char, 16 << 10> bytes;
    if (socket_ < 0 || ended_) return false;
    const ssize_t count = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return false;
    reset_ = count < 0;
    ended_ = count <= 0;
    if (!ended_) received_.append(bytes.data(), static_cast<size_t>(count));
    return !ended_;
  }

  void meet_server() {
    const auto connection = connection_.lock();
    if (connection == nullptr) return;
    if (client_ == Client::kMeetsStop) connection->stop_after_answer();
    if (client_ == Client::kMeetsEnd) connection->close();
  }

  void leave() {
    if (client_ == Client::kCloses) {
      ::close(std::exchange(socket_, -1));
      return;
    }
    if (client_ != Client::kLeaves) settle(/*reads=*/true);
    ended_by_server_ = ended_;
    ::shutdown(socket_, SHUT_WR);
  }

  Transcript check() const {
    const auto& entries = handler_.entries;
    const bool cut_off = client_ == Client::kMeetsEnd || client_ == Client::kCloses;
    const auto num_reported = static_cast<size_t>(std::ranges::count_if(
        entries, [](const EchoHandler::Entry& entry) { return entry.method.has_value(); }));
    HEDDLE_CHECK_LE(handler_.num_requests, handler_.num_heads);
    HEDDLE_CHECK_LE(num_reported, handler_.num_heads);
    HEDDLE_CHECK(client_ == Client::kMeetsEnd || num_reported == handler_.num_heads);

    Transcript result;
    std::string_view rest = received_;
    int64_t num_bytes = 0;
    bool all_taken = !cut_off;
    for (const EchoHandler::Entry& entry : entries) {
      const bool last = &entry == &entries.back();
      const int status = entry.answered.status;
      // The client may have left, and a stream may be broken off, only in the last.
      const bool given_up = is_given_up(entry);
      HEDDLE_CHECK(last || !given_up);
      num_bytes += entry.answered.bytes;
      all_taken = all_taken && status != kClientLeft;
      std::optional<Reply> reply = take_reply(rest, entry.method == "HEAD");
      if (!reply) {
        HEDDLE_CHECK(given_up || cut_off);
        break;
      }
      HEDDLE_CHECK(reply->complete || given_up || cut_off);
      HEDDLE_CHECK(given_up || cut_off || static_cast<int>(reply->status) == status);
      HEDDLE_CHECK(last || reply->keep_alive);
      check_status(reply->status);
      result.replies.push_back(std::move(*reply));
      result.ends_without_request = !entry.method;
    }
    HEDDLE_CHECK(rest.empty() || cut_off);
    const bool gave_up = !entries.empty() && is_given_up(entries.back());
    HEDDLE_CHECK(!reset_ || gave_up || cut_off);  // which could have overtaken an answer
    if (all_taken) HEDDLE_CHECK_EQ(num_bytes, static_cast<int64_t>(received_.size()));
    if (client_ == Client::kReads || client_ == Client::kReadsLate) {
      // It closes only behind an answer that says so, or that is broken off.
      const bool announced = !result.replies.empty() && !result.replies.back().keep_alive;
      const bool broken = !entries.empty() && entries.back().answered.status == kBrokenOff;
      HEDDLE_CHECK_EQ(ended_by_server_, announced || broken);
    }
    return result;
  }

  static bool is_given_up(const EchoHandler::Entry& entry) {
    return entry.answered.status == kClientLeft || entry.answered.status == kBrokenOff;
  }

  static void check_status(unsigned status) {
    constexpr std::array kKnown = {0u,   200u, 204u, 400u, 403u, 404u,
                                   405u, 413u, 415u, 431u, 501u, 503u};
    HEDDLE_CHECK(std::ranges::count(kKnown, status) == 1);
  }

  asio::io_context& io_;
  const Client client_;
  const HttpServerOptions options_ = options_for_inputs();
  const std::shared_ptr<BodyBudget> budget_ =
      std::make_shared<BodyBudget>(options_.max_held_body_bytes);
  BodyLease others_{budget_};  // of a connection beside it
  EchoHandler handler_;
  std::weak_ptr<Connection> connection_;
  int socket_ = -1;  // the client's
  std::string received_;
  bool ended_ = false;            // the server has closed its side
  bool reset_ = false;            // with bytes unread
  bool ended_by_server_ = false;  // before the client did
};

std::vector<std::string> pieces_of(std::string_view input) {
  std::vector<std::string> pieces(1);
  size_t num_bytes = 0;
  for (const char c : input) {
    if (c == '|') {
      if (!pieces.back().empty()) pieces.emplace_back();
      continue;
    }
    const size_t count = c == '^' ? kLongRunBytes : 1;
    num_bytes += count;
    if (num_bytes > kMaxInputBytes) break;
    pieces.back().append(count, c == '^' ? 'x' : c);
  }
  return pieces;
}

// Bytes that are no head are refused where that is seen: at once, where the head should end, where
// it grows too long, or never. Which of these depends on how they came.
void forget_malformed_end(Transcript& result) {
  if (result.ends_without_request) result.replies.pop_back();
}

void check_same(Transcript whole, Transcript cut) {
  const auto is_malformed = [](const Transcript& result) {
    return result.ends_without_request && result.replies.back().status == 400;
  };
  if (is_malformed(whole) || is_malformed(cut)) {
    forget_malformed_end(whole);
    forget_malformed_end(cut);
  }
  HEDDLE_CHECK_EQ(whole.replies.size(), cut.replies.size());
  for (size_t i = 0; i < whole.replies.size(); ++i) {
    HEDDLE_CHECK_EQ(whole.replies[i].status, cut.replies[i].status);
    HEDDLE_CHECK_EQ(whole.replies[i].text, cut.replies[i].text);
    HEDDLE_CHECK(whole.replies[i] == cut.replies[i]);
  }
}

}  // namespace
}  // namespace heddle::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::server;
  if (size == 0) return 0;
  static boost::asio::io_context io(1);
  static const GateOptions options;
  static RequestGate gate(options);
  const auto client = static_cast<Client>(data[0] % kNumClients);
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<std::string> pieces = pieces_of(input);
  Transcript result = Conversation(io, gate, client).run(pieces);
  if (client == Client::kReadsLate || (client == Client::kReads && pieces.size() > 1)) {
    std::string whole;
    for (const std::string& piece : pieces) whole += piece;
    check_same(Conversation(io, gate, Client::kReads).run({whole}), std::move(result));
  }
  return 0;
}
