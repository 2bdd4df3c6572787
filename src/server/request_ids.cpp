// SPDX-License-Identifier: Apache-2.0
#include "server/request_ids.h"

#include <array>
#include <cstdint>

#include <fmt/format.h>
#include <sys/random.h>

#include "core/check.h"

namespace heddle::server {

std::string new_request_id(std::string_view prefix) {
  std::array<uint64_t, 2> bits{};
  // So few bytes come whole, and always once the system has booted.
  HEDDLE_CHECK_EQ(getrandom(bits.data(), sizeof(bits), 0), static_cast<ssize_t>(sizeof(bits)));
  return fmt::format("{}{:016x}{:016x}", prefix, bits[0], bits[1]);
}

}  // namespace heddle::server
