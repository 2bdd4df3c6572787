// SPDX-License-Identifier: Apache-2.0
// check_kernels: whether the kernels of a device do on this machine what the CPU's do: each on one
// small case, in fp32 and then in bf16, where the shapes are those that the forms for serving take
// (few rows, tensor cores, ops that are launched together). It finds a driver, a GPU or a build
// that does not fit, not small errors: those are for the tests.
#pragma once

#include "device/device.h"
#include "ops/context.h"

namespace heddle::ops {

struct KernelCheck {
  int num_cases = 0;
  double seconds = 0;
};

// Runs on the stream of the device's context and waits for it; with an exact context, the forms of
// exact mode. Error: kInternal, naming the case whose results differ; else that of the op. Cost:
// below 100 ms on a GPU whose kernels are loaded.
Result<KernelCheck> check_kernels(device::Device& device, device::Stream& stream, Context& context);

}  // namespace heddle::ops
