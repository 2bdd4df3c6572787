// SPDX-License-Identifier: Apache-2.0
// ByteSocket: the socket of a connection: TCP, a unix socket, or one end of a socket pair.
//
// Private to the files that see Asio (src/server/README.md).
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>

namespace heddle::server {

using ByteSocket = boost::asio::generic::stream_protocol::socket;

}  // namespace heddle::server
