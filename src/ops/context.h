// SPDX-License-Identifier: Apache-2.0
// Context: what an op needs beside its arguments: the device it runs on, how exact it must be, on
// the CPU which of its optional instructions matrix products use, on CUDA the stream of its
// launches.
#pragma once

#include "core/check.h"
#include "core/shape_contract.h"
#include "device/device.h"
#include "device/thread_pool.h"

namespace heddle::device {
class CudaDevice;
class CudaStream;
}  // namespace heddle::device

namespace heddle::distributed {
class Communicator;
}  // namespace heddle::distributed

namespace heddle::ops {

using device::DeviceKind;

class DenseProducts;  // gemm/dense_products.h

struct Context {
  Context(DeviceKind kind, bool exact_mode) : device(kind), exact(exact_mode) {}

  virtual ~Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  DeviceKind device;

  // Exact mode (docs/numerics.md): the bits of a row depend on neither the number of rows nor its
  // neighbours nor the chunking.
  bool exact;

  // By which the ops of collective/ meet those of other ranks. It outlives the context. Null: the
  // model is computed by one rank, whose graph has none of them.
  const distributed::Communicator* ranks = nullptr;
};

// Instructions that matrix products may use beside the vectors of all kernels; exact mode uses none
// of them. They are part of a context so that two engines of a process choose apart, and tests run
// every kernel that their CPU has.
struct ProductInstructions {
  bool bf16 = false;   // dot products of bf16 numbers (gemm/bf16_product.h)
  bool int8 = false;   // dot products of 8-bit integers (gemm/int8_product.h)
  bool tiles = false;  // matrix tiles, through oneDNN (gemm/dnnl_product.h)

  // The instructions that this CPU has and that are faster than its vectors. Cost: a millisecond of
  // measuring on the first call of a process.
  [[nodiscard]] static ProductInstructions fastest();
};

struct CpuContext : Context {
  // `instructions` names only instructions that this CPU has.
  explicit CpuContext(device::ThreadPool& thread_pool, bool exact_mode = false,
                      const ProductInstructions& instructions = ProductInstructions::fastest())
      : Context(DeviceKind::kCpu, exact_mode),
        pool(thread_pool),
        products(exact_mode ? ProductInstructions() : instructions) {}

  device::ThreadPool& pool;
  ProductInstructions products;
};

// Launches go to `stream`, in order, and return before they are done.
struct CudaContext : Context {
  // All outlive the context. `products`: the library's dense matrix products, null in exact mode,
  // which has its own (gemm/linear.h).
  CudaContext(device::CudaDevice& cuda, device::CudaStream& cuda_stream,
              DenseProducts* dense_products, bool exact_mode = false)
      : Context(DeviceKind::kCuda, exact_mode),
        gpu(cuda),
        stream(cuda_stream),
        products(exact_mode ? nullptr : dense_products) {}

  device::CudaDevice& gpu;
  device::CudaStream& stream;
  DenseProducts* products;
  bool plain_attention = false;  // attention runs its plain kernels only, as in exact mode
};

// The dtypes that activations may have: fp32 on the CPU; on CUDA the dtype of the run, also in the
// residual. All activations of an op have that of its input x unless its header says otherwise:
// logits, router scores, gates and recurrent states are fp32 everywhere.
[[nodiscard]] inline DTypeSet activations(const Context& context) {
  return context.device == DeviceKind::kCpu ? DTypeSet(DType::kF32) : kFloating;
}

}  // namespace heddle::ops

// Calls the launcher of the context's device, op_cpu(CpuContext&, args) or op_cuda(CudaContext&,
// args). Arguments are already checked. Where a program is built without CUDA, without_cuda.cpp has
// the launchers for it, which answer kUnimplemented.
#define HEDDLE_DISPATCH_DEVICE(context, op, args)                         \
  ((context).device == ::heddle::ops::DeviceKind::kCpu                    \
       ? op##_cpu(static_cast<::heddle::ops::CpuContext&>(context), args) \
       : op##_cuda(static_cast<::heddle::ops::CudaContext&>(context), args))
