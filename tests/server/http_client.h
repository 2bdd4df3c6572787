// SPDX-License-Identifier: Apache-2.0
// A small blocking HTTP client on plain sockets, so that tests can misbehave on the wire.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "server/http/http_message.h"

namespace heddle::server {

struct Reply {
  int status = 0;                              // 0: no answer came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without chunk framing
  bool complete = false;                       // it ended as HTTP says it should

  [[nodiscard]] nlohmann::ordered_json json() const {
    return nlohmann::ordered_json::parse(body, nullptr, false);
  }

  // The data of each event of a stream.
  [[nodiscard]] std::vector<std::string> events() const {
    std::vector<std::string> result;
    std::string_view rest = body;
    for (size_t end; (end = rest.find("\n\n")) != std::string_view::npos;
         rest.remove_prefix(end + 2)) {
      const std::string_view event = rest.substr(0, end);
      if (event.starts_with("data: ")) result.emplace_back(event.substr(6));
    }
    return result;
  }
};

class HttpClient {
 public:
  explicit HttpClient(uint16_t port, int receive_buffer_bytes = 0) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer_bytes > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                   sizeof(receive_buffer_bytes));
    }
    const timeval timeout{.tv_sec = 120, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }

  ~HttpClient() { close(); }

  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }

  [[nodiscard]] int descriptor() const { return socket_; }

  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

  // Says that nothing more will be sent, and goes on reading.
  void shut_down_sending() { ::shutdown(socket_, SHUT_WR); }

  // Closes with a reset instead of an orderly end.
  void reset() {
    const linger hard{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close();
  }

  // Closes in one of the ways in which clients leave: in order, with a reset, or in order after it
  // has said that nothing more will be sent. `choice` is any number.
  void leave(uint64_t choice) {
    switch (choice % 3) {
      case 0:
        close();
        break;
      case 1:
        reset();
        break;
      default:
        shut_down_sending();
        close();
    }
  }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

  // The bytes of a request, for clients that do not send all of them.
  static std::string request_text(std::string_view method, std::string_view path,
                                  std::string_view body = {}, std::string_view extra_headers = {}) {
    std::string message = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n", method, path);
    if (!body.empty() || method == "POST" || method == "PUT") {
      message += fmt::format("Content-Length: {}\r\n", body.size());
      if (extra_headers.find("Content-Type") == std::string_view::npos) {
        message += "Content-Type: application/json\r\n";
      }
    }
    message.append(extra_headers).append("\r\n").append(body);
    return message;
  }

  bool send_request(std::string_view method, std::string_view path, std::string_view body = {},
                    std::string_view extra_headers = {}) {
    return send(request_text(method, path, body, extra_headers));
  }

  Reply call(std::string_view method, std::string_view path, std::string_view body = {},
             std::string_view extra_headers = {}) {
    send_request(method, path, body, extra_headers);
    return read_reply(method == "HEAD");
  }

  Reply post_text(std::string_view path, std::string_view body) { return call("POST", path, body); }

  Reply post(std::string_view path, const nlohmann::ordered_json& body) {
    return call("POST", path, body.dump());
  }

  // Reads until `needle` has arrived. False when the connection ended before.
  bool read_until(std::string_view needle) {
    while (pending_.find(needle) == std::string::npos) {
      if (!read_more()) return false;
    }
    return true;
  }

  // The next bytes that arrive, at most 16 KiB; "" when the connection has ended.
  std::string receive() {
    if (pending_.empty()) read_more();
    return std::exchange(pending_, {});
  }

  // True once the server has closed the connection.
  bool at_end() {
    while (read_more()) {
    }
    return true;
  }

  // Waits for the server's end. False when it is a reset.
  [[nodiscard]] bool ends_in_order() {
    char byte = 0;
    ssize_t count = 1;
    while (count > 0) count = ::recv(socket_, &byte, 1, 0);
    return count == 0;
  }

  [[nodiscard]] const std::string& pending() const { return pending_; }

  Reply read_reply(bool head_only = false) {
    Reply reply;
    if (!read_until("\r\n\r\n")) return reply;
    const size_t head_end = pending_.find("\r\n\r\n");
    const std::string head = pending_.substr(0, head_end);
    pending_.erase(0, head_end + 4);
    reply.status = std::atoi(head.substr(head.find(' ') + 1, 3).c_str());
    for (size_t line = head.find("\r\n"); line != std::string::npos;) {
      const size_t next = head.find("\r\n", line + 2);
      const std::string field = head.substr(line + 2, next - line - 2);
      const size_t colon = field.find(": ");
      reply.headers[lower_case(field.substr(0, colon))] = field.substr(colon + 2);
      line = next;
    }
    if (reply.status >= 100 && reply.status < 200) return read_reply(head_only);
    if (head_only || reply.status == 204) {
      reply.complete = true;
    } else if (reply.headers.contains("content-length")) {
      const size_t length = std::strtoull(reply.headers["content-length"].c_str(), nullptr, 10);
      while (pending_.size() < length && read_more()) {
      }
      reply.complete = pending_.size() >= length;
      reply.body = pending_.substr(0, length);
      pending_.erase(0, length);
    } else if (reply.headers.contains("transfer-encoding")) {
      read_chunks(reply);
    } else {
      reply.complete = at_end();
      reply.body = std::exchange(pending_, {});
    }
    return reply;
  }

 private:
  void read_chunks(Reply& reply) {
    while (read_until("\r\n")) {
      const size_t length = std::strtoull(pending_.c_str(), nullptr, 16);
      const size_t start = pending_.find("\r\n") + 2;
      while (pending_.size() < start + length + 2) {
        if (!read_more()) return;
      }
      reply.body += pending_.substr(start, length);
      pending_.erase(0, start + length + 2);
      if (length == 0) {
        reply.complete = true;
        return;
      }
    }
  }

  bool read_more() {
    char buffer[16384];
    const ssize_t count = ::recv(socket_, buffer, sizeof(buffer), 0);
    if (count <= 0) return false;
    pending_.append(buffer, static_cast<size_t>(count));
    return true;
  }

  int socket_ = -1;
  bool connected_ = false;
  std::string pending_;
};

}  // namespace heddle::server
