// SPDX-License-Identifier: Apache-2.0
// TlsTerminator: speaks TLS with the clients, so that nothing else of the server has to. A client's
// socket goes in; one end of a local pair of sockets comes out, which a connection reads and writes
// as it would the client's own. Bytes wait in the buffers of both sockets: a client that reads
// slowly makes the writer of the pair wait, one that leaves ends it.
//
// TLS 1.2 and 1.3. A client that does not complete the handshake in time is closed. One that speaks
// something else is closed, too, and a log line says why. A request in plain HTTP gets a 400 that
// tells the client to use https, if its method is GET, POST, HEAD, PUT or CONNECT: OpenSSL takes
// other methods for something else.
//
// Threading: confined to the I/O thread.
// Cost:      beside the cipher's, a copy of every byte; of every connection three files, two
//            buffers of 16 KiB and OpenSSL's own, about 50 KiB.
// Private to http_server.cpp.
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
  std::string certificate_file;  // PEM: the server's certificate, then those that signed it
  std::string key_file;          // PEM, without a password
  double handshake_seconds = 60;
  double write_timeout_seconds = 60;  // a client that takes no byte for so long is cut
};

class TlsTerminator {
 public:
  // Error: kInvalidArgument, naming the file that is no certificate, no key, or not its key.
  static Result<std::unique_ptr<TlsTerminator>> create(boost::asio::io_context& io,
                                                       const TlsOptions& options);

  virtual ~TlsTerminator() = default;

  // `address` names the client in the log. `on_end` is called when nothing is left to send.
  // Error: the process may open no more files.
  [[nodiscard]] virtual Result<ByteSocket> terminate(ByteSocket client, std::string address,
                                                     std::function<void()> on_end) = 0;
};

}  // namespace heddle::server
