// SPDX-License-Identifier: Apache-2.0
// DenseProducts: large matrix products of CUDA's default mode through cuBLASLt, which is loaded
// when it is first needed: the program starts without it, and without a driver.
//
// Threading: one thread at a time, that of the stream. Cost: a workspace of 32 MiB on the device; a
// product of a new shape asks the library for an algorithm once (some 100 us), later ones find it
// in a table.
#pragma once

#include <memory>

#include "core/tensor.h"
#include "device/cuda/cuda_device.h"

namespace heddle::ops {

// y[t, n] = sum over k of x[t, k] * weight[n, k]. x and weight have the same dtype, f32, bf16 or
// f16; y has it too, or is f32. Sums are fp32; TF32 is off.
struct DenseProduct {
  TensorView x;             // [T, K], rows may be strided
  TensorView weight;        // [N, K]
  MutableTensorView y;      // [T, N], rows may be strided
  bool accumulate = false;  // adds the product, perhaps rounded to y's dtype, to what y holds
};

class DenseProducts {
 public:
  virtual ~DenseProducts() = default;

  // Errors: kUnavailable, naming the library, when it cannot be loaded; kResourceExhausted;
  // kUnimplemented in a build without CUDA.
  static Result<std::unique_ptr<DenseProducts>> create(device::CudaDevice& gpu);

  // Enqueues the product. Error: kDeviceLost; kUnimplemented, where the library has no algorithm
  // for these shapes and alignments: another kernel has to do it.
  virtual Status multiply(device::CudaStream& stream, const DenseProduct& product) = 0;
};

}  // namespace heddle::ops
