// SPDX-License-Identifier: Apache-2.0
#include "server/request_ids.h"

#include <fmt/format.h>

namespace heddle::server {

RequestIds::RequestIds() {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device(),
                     device(), device(), device(), device()};
  generator_.seed(seed);
}

std::string RequestIds::next(std::string_view prefix) {
  return fmt::format("{}{:016x}{:016x}", prefix, generator_(), generator_());
}

}  // namespace heddle::server
