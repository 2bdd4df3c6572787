// SPDX-License-Identifier: Apache-2.0
#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace heddle::internal {

void check_failed(std::string_view where, std::string_view condition, std::string_view detail) {
  std::fprintf(stderr, "%.*s: check failed: %.*s%s%.*s\n", static_cast<int>(where.size()),
               where.data(), static_cast<int>(condition.size()), condition.data(),
               detail.empty() ? "" : ": ", static_cast<int>(detail.size()), detail.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace heddle::internal
