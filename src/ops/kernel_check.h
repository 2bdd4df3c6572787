// SPDX-License-Identifier: Apache-2.0
// check_kernels: whether the kernels of a device do on this machine what the CPU's do: each on one
// small case in fp32. It finds a driver, a GPU or a build that does not fit, not small errors:
// those are for the tests.
#pragma once

#include "device/device.h"
#include "ops/context.h"

namespace heddle::ops {

// Runs on the stream of the device's context and waits for it. Error: kInternal, naming the op
// whose results differ; else that of the op. Cost: some ten milliseconds.
Status check_kernels(device::Device& device, device::Stream& stream, Context& context);

}  // namespace heddle::ops
