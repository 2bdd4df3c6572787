// SPDX-License-Identifier: Apache-2.0
#include "report_failure.h"

#include <cstdio>

#include <fmt/format.h>

#include "subcommand.h"

namespace heddle::tools {

int report_failure(const Status& status) {
  fmt::print(stderr, "error: {}\n", status.message());
  return kExitFailure;
}

}  // namespace heddle::tools
