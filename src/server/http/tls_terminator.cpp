// SPDX-License-Identifier: Apache-2.0
#include "server/http/tls_terminator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <string_view>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>

#include "core/log.h"
#include "server/http/deadline.h"

// g++ 12 mistakes the frame allocator of Asio's coroutines for a mismatched one.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace heddle::server {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr auto kAwaitTls = asio::as_tuple(asio::use_awaitable);
constexpr size_t kRecordBytes = 16 << 10;  // most bytes of a TLS record
// Time for the client to read the last bytes and close its side.
constexpr double kCloseSeconds = 2;
// Most bytes dropped of an upload whose request is already answered.
constexpr size_t kMaxUnreadBytes = 64 << 20;

// The answer to a client that speaks plain HTTP.
constexpr std::string_view kUseHttps =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 137\r\n"
    "Connection: close\r\n\r\n"
    R"({"error":{"message":"This port speaks TLS: use https:// in the address.",)"
    R"("type":"invalid_request_error","param":null,"code":"use_https"}})";

// Whether a connection begins with an HTTP request line. OpenSSL reports that, too, but only for
// GET, HEAD, POST, PUT and CONNECT.
bool begins_request(std::string_view bytes) {
  constexpr std::string_view kMethods[] = {"GET ",    "HEAD ",    "POST ", "PUT ",     "PATCH ",
                                           "DELETE ", "OPTIONS ", "PRI ",  "CONNECT ", "TRACE "};
  return std::ranges::any_of(
      kMethods, [&bytes](std::string_view method) { return bytes.starts_with(method); });
}

bool is_plain_http(const error_code& failure) {
  if (failure.category() != asio::error::get_ssl_category()) return false;
  const int reason = ERR_GET_REASON(static_cast<unsigned long>(failure.value()));
  return reason == SSL_R_HTTP_REQUEST || reason == SSL_R_HTTPS_PROXY_REQUEST;
}

// The TLS session of one client. Kept alive by its coroutines.
class TlsSession : public std::enable_shared_from_this<TlsSession> {
 public:
  TlsSession(ByteSocket client, std::string address, ByteSocket plain, ssl::context& context,
             const TlsOptions& options, std::function<void()> on_end)
      : options_(options),
        address_(std::move(address)),
        tls_(std::move(client), context),
        plain_(std::move(plain)),
        deadline_(plain_.get_executor()),
        on_end_(std::move(on_end)) {}

  asio::awaitable<void> run() {
    const auto self = shared_from_this();
    limit(options_.handshake_seconds);
    if (co_await speaks_plain_http()) {
      co_await refuse_http();
      close();
      on_end_();
      co_return;
    }
    const auto [failure] = co_await tls_.async_handshake(ssl::stream_base::server, kAwaitTls);
    deadline_.stop();
    if (!failure) {
      asio::co_spawn(plain_.get_executor(), read_client(),
                     [self](const std::exception_ptr&) { self->end_input(); });
      co_await write_client();
      co_await shut_down_tls();
    } else if (failure.category() == asio::error::get_ssl_category()) {
      co_await refuse(failure);
    }
    close();
    on_end_();
  }

 private:
  // Closes both sockets after `limit_seconds`, which ends the current operation; a later call
  // replaces the limit.
  void limit(double limit_seconds) {
    deadline_.start(seconds(limit_seconds), [this] { close(); });
  }

  void close() {
    error_code ignored;
    tls_.next_layer().close(ignored);
    plain_.close(ignored);
  }

  void end_input() {
    error_code ignored;
    plain_.shutdown(asio::socket_base::shutdown_send, ignored);
  }

  asio::awaitable<void> read_client() {
    const auto self = shared_from_this();
    std::array<char, kRecordBytes> bytes;
    while (true) {
      const auto [failure, count] = co_await tls_.async_read_some(asio::buffer(bytes), kAwaitTls);
      if (failure) co_return;
      const auto [refused, written] =
          co_await asio::async_write(plain_, asio::buffer(bytes, count), kAwaitTls);
      static_cast<void>(written);
      if (refused) co_return;
    }
  }

  // Forwards bytes to the client until the connection closes its end of the pair, or the client
  // stops receiving.
  asio::awaitable<void> write_client() {
    std::array<char, kRecordBytes> bytes;
    while (true) {
      const auto [end, count] = co_await plain_.async_read_some(asio::buffer(bytes), kAwaitTls);
      if (end) co_return;
      limit(options_.write_timeout_seconds);
      const auto [failure, written] =
          co_await asio::async_write(tls_, asio::buffer(bytes, count), kAwaitTls);
      static_cast<void>(written);
      deadline_.stop();
      if (failure) co_return;
    }
  }

  // Reads ahead: the bytes remain in the socket for the handshake.
  asio::awaitable<bool> speaks_plain_http() {
    ByteSocket& client = tls_.next_layer();
    const auto [failure] = co_await client.async_wait(ByteSocket::wait_read, kAwaitTls);
    if (failure) co_return false;
    std::array<char, 8> first{};
    error_code ignored;
    const size_t count =
        client.receive(asio::buffer(first), asio::socket_base::message_peek, ignored);
    co_return begins_request({first.data(), count});
  }

  // Logs why the handshake failed, and answers clients that speak plain HTTP.
  asio::awaitable<void> refuse(error_code failure) {
    if (is_plain_http(failure)) {
      co_await refuse_http();
    } else {
      log_info(fmt::format("{}: no TLS connection: {}", address_, failure.message()));
    }
  }

  asio::awaitable<void> refuse_http() {
    log_info(fmt::format("{}: plain HTTP at a port that speaks TLS; use https://", address_));
    limit(kCloseSeconds);
    const auto [error, count] =
        co_await asio::async_write(tls_.next_layer(), asio::buffer(kUseHttps), kAwaitTls);
    static_cast<void>(count);
    if (!error) co_await read_rest();
  }

  asio::awaitable<void> shut_down_tls() {
    limit(kCloseSeconds);
    const auto [unclean] = co_await tls_.async_shutdown(kAwaitTls);
    static_cast<void>(unclean);
    co_await read_rest();
  }

  // Reads and drops what the client still sends. Closing with unread bytes would reset the
  // connection, and the client could lose the last answer before reading it.
  asio::awaitable<void> read_rest() {
    error_code error;
    tls_.next_layer().shutdown(asio::socket_base::shutdown_send, error);
    std::array<char, kRecordBytes> bytes;
    for (size_t total = 0; !error && total < kMaxUnreadBytes;) {
      const auto [failure, count] =
          co_await tls_.next_layer().async_read_some(asio::buffer(bytes), kAwaitTls);
      error = failure;
      total += count;
    }
    deadline_.stop();
  }

  const TlsOptions& options_;
  const std::string address_;
  ssl::stream<ByteSocket> tls_;
  ByteSocket plain_;
  Deadline deadline_;
  std::function<void()> on_end_;
};

class AsioTlsTerminator final : public TlsTerminator {
 public:
  AsioTlsTerminator(asio::io_context& io, const TlsOptions& options) : io_(io), options_(options) {}

  Status load() {
    error_code error;
    context_.set_options(ssl::context::default_workarounds | ssl::context::no_sslv3 |
                             ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1,
                         error);
    if (!error) context_.use_certificate_chain_file(options_.certificate_file, error);
    if (error) {
      return invalid_argument(fmt::format("--ssl-certfile: {} is no certificate in PEM form: {}",
                                          options_.certificate_file, error.message()));
    }
    context_.use_private_key_file(options_.key_file, ssl::context::pem, error);
    if (error) {
      return invalid_argument(
          fmt::format("--ssl-keyfile: {} is not the private key, in PEM form, of {}: {}",
                      options_.key_file, options_.certificate_file, error.message()));
    }
    return ok_status();
  }

  Result<ByteSocket> terminate(ByteSocket client, std::string address,
                               std::function<void()> on_end) override {
    asio::local::stream_protocol::socket ours(io_);
    asio::local::stream_protocol::socket theirs(io_);
    error_code error;
    asio::local::connect_pair(ours, theirs, error);
    if (error) return resource_exhausted("cannot open a pair of sockets: " + error.message());
    const auto session = std::make_shared<TlsSession>(std::move(client), std::move(address),
                                                      ByteSocket(std::move(ours)), context_,
                                                      options_, std::move(on_end));
    asio::co_spawn(io_, session->run(), [session](const std::exception_ptr& failure) {
      if (failure) log_error("a TLS session ended by an exception");
    });
    return ByteSocket(std::move(theirs));
  }

 private:
  asio::io_context& io_;
  const TlsOptions options_;
  ssl::context context_{ssl::context::tls_server};
};

}  // namespace

Result<std::unique_ptr<TlsTerminator>> TlsTerminator::create(asio::io_context& io,
                                                             const TlsOptions& options) {
  auto terminator = std::make_unique<AsioTlsTerminator>(io, options);
  HEDDLE_RETURN_IF_ERROR(terminator->load());
  return std::unique_ptr<TlsTerminator>(std::move(terminator));
}

}  // namespace heddle::server
