// SPDX-License-Identifier: Apache-2.0
// The end of a subcommand that failed: one line on standard error, exit code 1.
#pragma once

#include <heddle/status.h>

namespace heddle::tools {

int report_failure(const Status& status);

}  // namespace heddle::tools
