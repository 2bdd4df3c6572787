// SPDX-License-Identifier: Apache-2.0
// Context: what an op needs beside its arguments: the device it runs on and how exact it must be.
#pragma once

#include "core/check.h"
#include "device/device.h"
#include "device/thread_pool.h"

namespace heddle::ops {

using device::DeviceKind;

struct Context {
  DeviceKind device = DeviceKind::kCpu;

  // D12: results of a row depend on neither the number of rows nor its neighbours nor the chunking.
  bool exact = false;
};

struct CpuContext : Context {
  explicit CpuContext(device::ThreadPool& thread_pool, bool exact_mode = false)
      : Context{.device = DeviceKind::kCpu, .exact = exact_mode}, pool(thread_pool) {}

  device::ThreadPool& pool;
};

}  // namespace heddle::ops

// Calls the launcher of the context's device: op_cpu(CpuContext&, args). Arguments are already
// checked.
#define HEDDLE_DISPATCH_DEVICE(context, op, args)                         \
  ((context).device == ::heddle::ops::DeviceKind::kCpu                    \
       ? op##_cpu(static_cast<::heddle::ops::CpuContext&>(context), args) \
       : ::heddle::unimplemented(#op " has no launcher for this device"))
