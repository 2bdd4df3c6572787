// SPDX-License-Identifier: Apache-2.0
// Context: what an op needs beside its arguments: the device it runs on, how exact it must be, and
// on the CPU which of its optional instructions matrix products use.
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

// Instructions that matrix products may use beside the vectors of all kernels; exact mode uses none
// of them. They are part of a context so that two engines of a process choose apart, and tests run
// every kernel that their CPU has.
struct ProductInstructions {
  bool bf16 = false;   // dot products of bf16 numbers (gemm/bf16_product.h)
  bool int8 = false;   // dot products of 8-bit integers (gemm/int8_product.h)
  bool tiles = false;  // matrix tiles, through oneDNN (gemm/dnnl_product.h)

  // Those that this CPU has and that are faster than its vectors.
  // Cost: a millisecond of measuring on the first call of a process.
  [[nodiscard]] static ProductInstructions fastest();
};

struct CpuContext : Context {
  // `instructions` names only instructions that this CPU has.
  explicit CpuContext(device::ThreadPool& thread_pool, bool exact_mode = false,
                      const ProductInstructions& instructions = ProductInstructions::fastest())
      : Context{.device = DeviceKind::kCpu, .exact = exact_mode},
        pool(thread_pool),
        products(exact_mode ? ProductInstructions() : instructions) {}

  device::ThreadPool& pool;
  ProductInstructions products;
};

}  // namespace heddle::ops

// Calls the launcher of the context's device: op_cpu(CpuContext&, args). Arguments are already
// checked.
#define HEDDLE_DISPATCH_DEVICE(context, op, args)                         \
  ((context).device == ::heddle::ops::DeviceKind::kCpu                    \
       ? op##_cpu(static_cast<::heddle::ops::CpuContext&>(context), args) \
       : ::heddle::unimplemented(#op " has no launcher for this device"))
