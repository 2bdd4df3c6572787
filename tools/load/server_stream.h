// SPDX-License-Identifier: Apache-2.0
// ServerStream: a TCP connection to a server, with TLS if the address requires it. Beast's
// functions accept it as a stream, blocking or not.
//
// Threading: thread-confined. Only included by files that use Asio and Beast, which are slow to
//            compile.
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

#include "tools/load/server_address.h"
#include "tools/load/server_call.h"

namespace heddle::tools {

// The certificates for TLS. Only read after construction, so connections on several threads may
// share it.
class TlsContext {
 public:
  explicit TlsContext(bool insecure) : context_(boost::asio::ssl::context::tls_client) {
    boost::system::error_code ignored;  // without any certificates no server is accepted
    if (!insecure) context_.set_default_verify_paths(ignored);
  }

  boost::asio::ssl::context& get() { return context_; }

 private:
  boost::asio::ssl::context context_;
};

class ServerStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;
  using ErrorCode = boost::system::error_code;

  // `context` belongs to `address` (make_tls_context()).
  ServerStream(boost::asio::io_context& io, const ServerAddress& address,
               const std::shared_ptr<TlsContext>& context)
      : host_(address.host), context_(context), tcp_(io) {
    if (!address.tls) return;
    tls_.emplace(tcp_, context_->get());
    ErrorCode no_number;
    static_cast<void>(boost::asio::ip::make_address(host_, no_number));
    SSL* const ssl = tls_->native_handle();
    if (no_number) SSL_set_tlsext_host_name(ssl, host_.c_str());
    if (address.insecure) return;
    SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
    // Certificates contain addresses without a zone (as in "fe80::1%eth0").
    const std::string number = host_.substr(0, host_.find('%'));
    has_name_ = no_number ? SSL_set1_host(ssl, host_.c_str()) == 1
                          : X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), number.c_str()) == 1;
  }

  boost::beast::tcp_stream& tcp() { return tcp_; }

  executor_type get_executor() { return tcp_.get_executor(); }

  // Performs the TLS handshake after connecting. Does nothing without TLS.
  boost::asio::awaitable<ErrorCode> async_handshake() {
    ErrorCode error = cannot_check();
    if (tls_ && !error) {
      std::tie(error) = co_await tls_->async_handshake(
          boost::asio::ssl::stream_base::client, boost::asio::as_tuple(boost::asio::use_awaitable));
    }
    co_return error;
  }

  void handshake(ErrorCode& error) {
    error = cannot_check();
    if (tls_ && !error) tls_->handshake(boost::asio::ssl::stream_base::client, error);
  }

  // The reason why a handshake failed, as text.
  std::string handshake_failure(const ErrorCode& error) {
    if (cannot_check()) {
      return fmt::format(
          "no certificate can be checked for the name {}; --insecure skips the check", host_);
    }
    const auto* const category = &error.category();
    if (category != &boost::asio::error::get_ssl_category()) return error.message();
    const long checked = SSL_get_verify_result(tls_->native_handle());
    const bool is_refused =
        SSL_get_verify_mode(tls_->native_handle()) != SSL_VERIFY_NONE && checked != X509_V_OK;
    if (!is_refused) return error.message() + "; does the server speak https?";
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

  // Beast requires the forms with exceptions of a stream; none is called.
  template <typename Buffers>
  size_t read_some(const Buffers& buffers) {
    return tls_ ? tls_->read_some(buffers) : tcp_.read_some(buffers);
  }

  template <typename Buffers>
  size_t write_some(const Buffers& buffers) {
    return tls_ ? tls_->write_some(buffers) : tcp_.write_some(buffers);
  }

 private:
  // The error if the name to check in a certificate could not be set.
  [[nodiscard]] ErrorCode cannot_check() const {
    return has_name_ ? ErrorCode() : ErrorCode(boost::asio::error::invalid_argument);
  }

  const std::string host_;
  const std::shared_ptr<TlsContext> context_;
  boost::beast::tcp_stream tcp_;
  bool has_name_ = true;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace heddle::tools
