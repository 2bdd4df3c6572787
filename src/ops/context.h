// SPDX-License-Identifier: Apache-2.0
// Context: what an op needs besides its arguments: the device that it runs on and whether exact
// mode is on; on the CPU the optional instructions that matrix products may use; on CUDA the stream
// that kernels are launched on.
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

class DenseProducts;  // defined in gemm/dense_products.h

struct Context {
  Context(DeviceKind kind, bool exact_mode) : device(kind), exact(exact_mode) {}

  virtual ~Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  DeviceKind device;

  // Exact mode (docs/numerics.md): the bits of a row do not depend on the number of rows, on the
  // other rows of the step or on how prompts are cut into chunks.
  bool exact;

  // By which the ops of collective/ meet those of other ranks. It outlives the context. Null: the
  // model is computed by one rank, whose graph has none of them.
  const distributed::Communicator* ranks = nullptr;
};

// CPU instructions that matrix products may use in addition to the vector instructions that all
// kernels use. Exact mode uses none of them. They are part of a context so that each engine of a
// process has its own choice, and so that tests can run every kernel that their CPU supports.
struct ProductInstructions {
  bool bf16 = false;   // dot products of bf16 numbers (gemm/bf16_product.h)
  bool int8 = false;   // dot products of 8-bit integers (gemm/int8_product.h)
  bool tiles = false;  // matrix tiles, through oneDNN (gemm/dnnl_product.h)

  // The instructions that this CPU has and that are faster here than its vector instructions. Cost:
  // the first call of a process measures them for a millisecond.
  [[nodiscard]] static ProductInstructions fastest();
};

struct CpuContext : Context {
  // Only instructions that this CPU has may be set in `instructions`.
  explicit CpuContext(device::ThreadPool& thread_pool, bool exact_mode = false,
                      const ProductInstructions& instructions = ProductInstructions::fastest())
      : Context(DeviceKind::kCpu, exact_mode),
        pool(thread_pool),
        products(exact_mode ? ProductInstructions() : instructions) {}

  device::ThreadPool& pool;
  ProductInstructions products;
};

// Ops enqueue their kernels on `stream`, in order, and return before the kernels have finished.
struct CudaContext : Context {
  // All arguments must outlive the context. `dense_products` are the matrix products of cuBLASLt;
  // exact mode does not use them, because gemm/linear.h has exact kernels.
  CudaContext(device::CudaDevice& cuda, device::CudaStream& cuda_stream,
              DenseProducts* dense_products, bool exact_mode = false)
      : Context(DeviceKind::kCuda, exact_mode),
        gpu(cuda),
        stream(cuda_stream),
        products(exact_mode ? nullptr : dense_products) {}

  device::CudaDevice& gpu;
  device::CudaStream& stream;
  DenseProducts* products;
  bool plain_attention = false;  // true: attention runs only the kernels of exact mode
};

// The dtypes that activations may have: fp32 on the CPU; on CUDA the dtype that the model runs in,
// also for the residual. All activations of an op have the dtype of its input x unless the op's
// header says otherwise. Logits, router scores, gates and recurrent states are fp32 everywhere.
[[nodiscard]] inline DTypeSet activations(const Context& context) {
  return context.device == DeviceKind::kCpu ? DTypeSet(DType::kF32) : kFloating;
}

}  // namespace heddle::ops

// Calls the op's launcher for the context's device: op_cpu(CpuContext&, args) or
// op_cuda(CudaContext&, args). The arguments must have been checked. In a build without CUDA,
// without_cuda.cpp defines the CUDA launchers, which return kUnimplemented.
#define HEDDLE_DISPATCH_DEVICE(context, op, args)                         \
  ((context).device == ::heddle::ops::DeviceKind::kCpu                    \
       ? op##_cpu(static_cast<::heddle::ops::CpuContext&>(context), args) \
       : op##_cuda(static_cast<::heddle::ops::CudaContext&>(context), args))
