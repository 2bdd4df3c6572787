// SPDX-License-Identifier: Apache-2.0
// How a listening socket comes to its end without cutting anybody off: closing it resets those who
// have connected and were not accepted yet, so first nobody may begin to connect any more, then
// those are accepted, and then it is closed.
//
// Threading: any. Linux.
#pragma once

namespace heddle::server {

// From now on the packets that would begin a connection are dropped, as on a bad line: a client's
// next attempt, a second later, finds the port closed. Handshakes under way go on. Where the system
// refuses such a filter nothing changes, and who connects in the very moment of closing is reset.
void drop_new_connections(int listening_socket);

}  // namespace heddle::server
