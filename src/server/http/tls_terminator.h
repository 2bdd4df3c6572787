// SPDX-License-Identifier: Apache-2.0
// TlsTerminator: speaks TLS with the clients, so that no other part of the server has to. It takes
// a client's socket and returns one end of a local socket pair, which a connection reads and writes
// like the client's own socket. Bytes are buffered in both sockets: a client that reads slowly
// blocks the writer of the pair, and one that disconnects ends it.
//
// TLS 1.2 and 1.3. A client that does not complete the handshake in time is disconnected. So is one
// that speaks another protocol, and a log line says why. A request in plain HTTP gets a 400 that
// tells the client to use https, if its method is GET, POST, HEAD, PUT or CONNECT; OpenSSL does not
// recognise other methods as HTTP.
//
// Threading: confined to the I/O thread.
// Cost:      besides the cipher, one copy of every byte; per connection three files, two buffers of
//            16 KiB and OpenSSL's own, about 50 KiB. Private to http_server.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include <heddle/status.h>

#include "server/http/byte_socket.h"

namespace heddle::server {

struct TlsOptions {
  // PEM: the server's certificate, then the certificates that signed it.
  std::string certificate_file;
  std::string key_file;  // PEM: the private key, without a password
  double handshake_seconds = 60;
  double write_timeout_seconds = 60;  // a client that receives no byte for so long is disconnected
};

class TlsTerminator {
 public:
  // Error: kInvalidArgument, naming the file that is no certificate, no key, or the key of another
  // certificate.
  static Result<std::unique_ptr<TlsTerminator>> create(boost::asio::io_context& io,
                                                       const TlsOptions& options);

  virtual ~TlsTerminator() = default;

  // Returns the socket for the decrypted bytes. `address` names the client in the log. `on_end` is
  // called when nothing is left to send. Error: the process may open no more files.
  [[nodiscard]] virtual Result<ByteSocket> terminate(ByteSocket client, std::string address,
                                                     std::function<void()> on_end) = 0;
};

}  // namespace heddle::server
