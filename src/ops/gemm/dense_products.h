// SPDX-License-Identifier: Apache-2.0
// DenseProducts: large matrix products of CUDA's default mode through cuBLASLt. The library is
// loaded at first use, so that the program starts on machines without it or without a driver.
//
// Threading: one thread at a time, the one that uses the stream. Cost: a workspace of 32 MiB on the
// device. For each new shape the library is asked for an algorithm once (some 100 us); later
// products of that shape find it in a table.
#pragma once

#include <memory>

#include "core/tensor.h"
#include "device/cuda/cuda_device.h"

namespace heddle::ops {

// y[t, n] = sum over k of x[t, k] * weight[n, k]. x and weight have the same dtype: f32, bf16 or
// f16. y has that dtype, or f32. Sums are fp32; TF32 is off.
struct DenseProduct {
  TensorView x;         // activations [T, K]; rows may be strided
  TensorView weight;    // weight [N, K]
  MutableTensorView y;  // result [T, N]; rows may be strided
  // true: the product, possibly rounded to y's dtype, is added to the numbers in y
  bool accumulate = false;
};

class DenseProducts {
 public:
  virtual ~DenseProducts() = default;

  // Errors: kUnavailable, naming the library, if it cannot be loaded; kResourceExhausted;
  // kUnimplemented in a build without CUDA.
  static Result<std::unique_ptr<DenseProducts>> create(device::CudaDevice& gpu);

  // Enqueues the product. Errors: kDeviceLost; kUnimplemented if the library has no algorithm for
  // these shapes and alignments, so that the caller must use another kernel.
  virtual Status multiply(device::CudaStream& stream, const DenseProduct& product) = 0;
};

}  // namespace heddle::ops
