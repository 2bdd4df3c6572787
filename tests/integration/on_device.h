// SPDX-License-Identifier: Apache-2.0
// Suites that run whole models once on each kind of device: Cpu/..., and Cuda/..., which skip where
// there is no GPU.
#pragma once

#include <gtest/gtest.h>

#include "device/cuda/cuda_device.h"

namespace heddle::testing {

// Of a GPU's free memory, for the pools of small models: parts of a long suite share one GPU.
inline constexpr double kShareOfGpu = 0.03;

}  // namespace heddle::testing

// Skips the running test, saying why, unless `name` ("cpu", "cuda") is a device of this machine.
#define HEDDLE_DEVICE_OR_SKIP(name)                              \
  if ((name) == "cuda") {                                        \
    const auto opened = ::heddle::device::open_cuda_device(0);   \
    if (!opened.ok()) GTEST_SKIP() << opened.status().message(); \
  }                                                              \
  static_assert(true)
