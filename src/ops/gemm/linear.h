// SPDX-License-Identifier: Apache-2.0
// linear: y[t, n] = sum over k of x[t, k] * weight[n, k] + bias[n]
#pragma once

#include <cstddef>
#include <span>

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

struct LinearArgs {
  TensorView x;  // [T, K]  activations(context); rows may be a column range of a tensor
  // [N, K] fp32, bf16 or fp16, read in place with any alignment of whole elements; or quantised, in
  // memory of the context's device
  TensorView weight;
  TensorView bias = {};  // bias [N], fp32; no data: none
  // Output [T, N], as x or fp32; rows may be a column range; must not overlap x.
  MutableTensorView y;
  std::span<std::byte> workspace = {};  // linear_workspace_bytes(...) bytes, any alignment
};

// Bytes of workspace that suffice for every T up to max_T. Depends on the context's instructions.
[[nodiscard]] int64_t linear_workspace_bytes(const Context& context, int64_t max_T, int64_t K,
                                             int64_t N, DType weight);

// Exact mode: every element is one fixed sequence of fp32 operations on its row of x and its row of
// weight; it does not depend on T, the other rows or the threads (row_dot.h). Otherwise the fastest
// kernel for T is used. Sums are fp32. Where the CPU multiplies bf16 faster than fp32
// (bf16_product.h), x is rounded to bf16 for bf16 weights: at most 2^-8 relative per factor. With
// quantised integer weights, runs in bf16 or fp16 round x to 8 bits (int8_product.h); fp32 runs
// multiply the dequantised numbers (row_dot.h).
//
// On CUDA: in exact mode an element is one sequence of operations (cuda/row_products.cuh), and y is
// rounded once. The default mode has two more kinds of kernels: for up to 16 rows of bf16
// (skinny_product.h), and cuBLASLt for more rows with weights of x's dtype (dense_products.h),
// where the bias is rounded to y's dtype first. For quantised weights see packed_linear.h.
//
// Cost: few rows stream the weights once (bandwidth-bound up to about 4 rows); many rows run at the
// rate of fused multiply-adds. Allocates nothing, except what oneDNN allocates and frees within a
// call (dnnl_product.h). Rows of y are written completely or, on an error, not at all. Error:
// kInvalidArgument, naming the tensor and the dimension that disagree.
Status linear(Context& context, const LinearArgs& args);
Status linear_cpu(CpuContext& context, const LinearArgs& args);    // args already checked
Status linear_cuda(CudaContext& context, const LinearArgs& args);  // args already checked

}  // namespace heddle::ops
