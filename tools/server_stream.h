// SPDX-License-Identifier: Apache-2.0
// ServerStream: a connection to a server by TCP, with TLS where the address asks for it. A stream
// as Beast's functions take it, blocking or not.
//
// Threading: thread-confined. Only files that see Asio and Beast, which are slow to compile,
// include this.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "server_address.h"

namespace heddle::tools {

class ServerStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;
  using ErrorCode = boost::system::error_code;

  ServerStream(boost::asio::io_context& io, const ServerAddress& address)
      : host_(address.host), tcp_(io) {
    if (!address.tls) return;
    context_ = std::make_unique<boost::asio::ssl::context>(boost::asio::ssl::context::tls_client);
    ErrorCode ignored;  // without certificates to check by none is accepted
    context_->set_default_verify_paths(ignored);
    tls_.emplace(tcp_, *context_);
    tls_->set_verify_mode(
        address.insecure ? boost::asio::ssl::verify_none : boost::asio::ssl::verify_peer, ignored);
    ErrorCode no_number;
    static_cast<void>(boost::asio::ip::make_address(host_, no_number));
    if (no_number) {
      SSL_set_tlsext_host_name(tls_->native_handle(), host_.c_str());
      SSL_set1_host(tls_->native_handle(), host_.c_str());
    } else {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_->native_handle()), host_.c_str());
    }
  }

  boost::beast::tcp_stream& tcp() { return tcp_; }

  executor_type get_executor() { return tcp_.get_executor(); }

  // Once it is connected. Does nothing without TLS.
  boost::asio::awaitable<ErrorCode> async_handshake() {
    ErrorCode error;
    if (tls_) {
      std::tie(error) = co_await tls_->async_handshake(
          boost::asio::ssl::stream_base::client, boost::asio::as_tuple(boost::asio::use_awaitable));
    }
    co_return error;
  }

  void handshake(ErrorCode& error) {
    if (tls_) tls_->handshake(boost::asio::ssl::stream_base::client, error);
  }

  // Why a handshake failed.
  std::string handshake_failure(const ErrorCode& error) {
    const auto* const category = &error.category();
    if (category != &boost::asio::error::get_ssl_category()) return error.message();
    const long checked = SSL_get_verify_result(tls_->native_handle());
    if (checked == X509_V_OK) return error.message() + "; does the server speak https?";
    return fmt::format("the certificate of {} is not accepted: {}; --insecure skips the check",
                       host_, X509_verify_cert_error_string(checked));
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(ErrorCode, size_t)>(
        [this](auto handler, const Buffers& into) {
          if (tls_) {
            tls_->async_read_some(into, std::move(handler));
          } else {
            tcp_.async_read_some(into, std::move(handler));
          }
        },
        token, buffers);
  }

  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(ErrorCode, size_t)>(
        [this](auto handler, const Buffers& from) {
          if (tls_) {
            tls_->async_write_some(from, std::move(handler));
          } else {
            tcp_.async_write_some(from, std::move(handler));
          }
        },
        token, buffers);
  }

  template <typename Buffers>
  size_t read_some(const Buffers& buffers, ErrorCode& error) {
    return tls_ ? tls_->read_some(buffers, error) : tcp_.read_some(buffers, error);
  }

  template <typename Buffers>
  size_t write_some(const Buffers& buffers, ErrorCode& error) {
    return tls_ ? tls_->write_some(buffers, error) : tcp_.write_some(buffers, error);
  }

  // The forms with exceptions are a part of what Beast takes for a stream; none is called.
  template <typename Buffers>
  size_t read_some(const Buffers& buffers) {
    return tls_ ? tls_->read_some(buffers) : tcp_.read_some(buffers);
  }

  template <typename Buffers>
  size_t write_some(const Buffers& buffers) {
    return tls_ ? tls_->write_some(buffers) : tcp_.write_some(buffers);
  }

 private:
  const std::string host_;
  boost::beast::tcp_stream tcp_;
  std::unique_ptr<boost::asio::ssl::context> context_;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace heddle::tools
