// SPDX-License-Identifier: Apache-2.0
#include "server/listen_filter.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include "core/log.h"

namespace heddle::server {

void drop_new_connections(int listening_socket) {
  // The packet begins with its TCP header, whose byte 13 has the flags; 2 is SYN.
  std::array<sock_filter, 4> program = {{
      {BPF_LD | BPF_B | BPF_ABS, 0, 0, 13},
      {BPF_JMP | BPF_JSET | BPF_K, 0, 1, 2},
      {BPF_RET | BPF_K, 0, 0, 0},
      {BPF_RET | BPF_K, 0, 0, 0xffffffff},
  }};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  if (setsockopt(listening_socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) != 0) {
    log_debug(fmt::format("the port cannot be filtered: {}", std::strerror(errno)));
  }
}

}  // namespace heddle::server
