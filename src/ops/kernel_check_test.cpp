// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel_check.h"

#include <gtest/gtest.h>

#include "ops/device_fixture.h"

namespace heddle::ops {
namespace {

class KernelCheckTest : public DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(KernelCheckTest);

TEST_P(KernelCheckTest, SmallestCasesAgreeWithTheCpuInBothModes) {
  for (const bool exact : {false, true}) {
    const Status status = check_kernels(device(), stream(), context(exact));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

}  // namespace
}  // namespace heddle::ops
