// SPDX-License-Identifier: Apache-2.0
// check_kernels(): compares the kernels of a device with the CPU's on this machine. Each kernel
// runs one small case in fp32 and then in bf16, with shapes that select the kernels used for
// serving (few rows, tensor cores, ops that are launched together). It finds a driver, a GPU or a
// build that does not work; finding small errors is left to the tests.
#pragma once

#include "device/device.h"
#include "ops/context.h"

namespace heddle::ops {

struct KernelCheck {
  int num_cases = 0;
  double seconds = 0;
};

// Runs on the context's stream and waits for it. With an exact context it checks the kernels of
// exact mode. Error: kInternal, naming the case whose results differ; else the error of the op.
// Cost: below 100 ms on a GPU whose kernels are loaded.
Result<KernelCheck> check_kernels(device::Device& device, device::Stream& stream, Context& context);

}  // namespace heddle::ops
