// SPDX-License-Identifier: Apache-2.0
#include "tools/load/server_call.h"

#include <algorithm>
#include <array>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>
#include <sys/socket.h>

#include "tools/load/load_answer.h"
#include "tools/load/server_stream.h"

namespace heddle::tools {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kMaxBodyBytes = 16 << 20;  // limit for answers that are not streams

}  // namespace

std::shared_ptr<TlsContext> make_tls_context(const ServerAddress& address) {
  return address.tls ? std::make_shared<TlsContext>(address.insecure) : nullptr;
}

bool ServerCall::cancel() {
  const MutexLock lock(mutex_);
  if (!runs_) return false;
  cancelled_ = true;
  if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);  // also ends a connect() in progress
  return true;
}

bool ServerCall::set_running(int socket) {
  const MutexLock lock(mutex_);
  socket_ = cancelled_ ? -1 : socket;
  return !cancelled_;
}

bool ServerCall::was_cancelled() {
  const MutexLock lock(mutex_);
  return cancelled_;
}

Result<ServerReply> ServerCall::post(std::string_view path, std::string body,
                                     const TakeEvent& take) {
  {
    const MutexLock lock(mutex_);
    runs_ = true;
    cancelled_ = false;
  }
  asio::io_context io;
  ServerStream stream(io, address_, tls_);

  // Closes the socket at the end of the call, however it ends.
  struct End {
    ServerCall& call;

    ~End() {
      const MutexLock lock(call.mutex_);
      call.socket_ = -1;
      call.runs_ = false;
    }
  } const end{*this};

  ServerReply reply;
  // The reply of a call that ended early: an error unless it was cancelled.
  const auto ended = [&](std::string_view of, const std::string& why) -> Result<ServerReply> {
    reply.was_cancelled = was_cancelled();
    if (reply.was_cancelled) return std::move(reply);
    return unavailable(fmt::format("{}: {} failed: {}", address_.url(), of, why));
  };
  const auto not_connected = [&](const error_code& why) {
    return ended("the connection", why.message() + "; is the server up?");
  };
  error_code error;
  asio::ip::tcp::resolver resolver(io);
  const auto found = resolver.resolve(address_.host, address_.port, error);
  if (error) return not_connected(error);
  auto& socket = stream.tcp().socket();
  for (const auto& entry : found) {
    error_code ignored;
    set_running(-1);
    socket.close(ignored);
    socket.open(entry.endpoint().protocol(), error);
    if (error) continue;
    if (!set_running(socket.native_handle())) return ended("the connection", "cancelled");
    socket.connect(entry.endpoint(), error);
    if (!error || was_cancelled()) break;
  }
  if (error) return not_connected(error);
  stream.handshake(error);
  if (error) return ended("the connection", stream.handshake_failure(error));

  http::request<http::string_body> request(http::verb::post, address_.path + std::string(path), 11);
  request.set(http::field::host, address_.host_header());
  request.set(http::field::user_agent, user_agent_);
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  if (!api_key_.empty()) request.set(http::field::authorization, "Bearer " + api_key_);
  request.body() = std::move(body);
  request.prepare_payload();
  http::write(stream, request, error);
  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  error = {};  // the server may have refused the request before it was sent completely
  http::read_header(stream, buffer, parser, error);
  if (error) return ended("the answer", error.message());
  reply.status = static_cast<int>(parser.get().result_int());
  reply.is_stream = reply.status == 200 &&
                    parser.get()[http::field::content_type].starts_with("text/event-stream");
  SseReader reader;
  std::array<char, 16 << 10> bytes;
  while (!parser.is_done()) {
    parser.get().body().data = bytes.data();
    parser.get().body().size = bytes.size();
    http::read_some(stream, buffer, parser, error);
    if (error == http::error::need_buffer) error = {};
    const std::string_view part(bytes.data(), bytes.size() - parser.get().body().size);
    if (reply.is_stream) {
      reader.feed(part, take);
    } else {
      reply.body += part.substr(0, kMaxBodyBytes - std::min(reply.body.size(), kMaxBodyBytes));
    }
    if (error) return ended("the answer", error.message());
  }
  return reply;
}

}  // namespace heddle::tools
