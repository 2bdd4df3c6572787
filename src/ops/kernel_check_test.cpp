// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel_check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/log.h"
#include "ops/device_fixture.h"

namespace heddle::ops {
namespace {

class KernelCheckTest : public DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(KernelCheckTest);

// Also what compute-sanitizer looks at: nearly every kernel of the ops, in one case at least.
TEST_P(KernelCheckTest, SmallestCasesAgreeWithTheCpuInBothModes) {
  for (const bool exact : {true, false, false}) {  // the last one finds all kernels loaded
    const Result<KernelCheck> check = check_kernels(device(), stream(), context(exact));
    ASSERT_TRUE(check.ok()) << check.status().to_string();
    EXPECT_GT(check->num_cases, 0);
    log_info(fmt::format("{} cases on {}, exact = {}: {:.1f} ms", check->num_cases, device().name(),
                         exact, check->seconds * 1e3));
  }
}

}  // namespace
}  // namespace heddle::ops
