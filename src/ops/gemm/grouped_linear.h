// SPDX-License-Identifier: Apache-2.0
// grouped_linear: a linear layer a group of rows, as a mixture of experts needs it, on the CPU
// (routed_moe has its own on CUDA). The rows of y are sorted by expert; expert e owns rows
// row_offsets[e] <= r < row_offsets[e + 1]:
//     y[r, n] = sum over k of x[s, k] * weight[e, n, k]
// with s = x_rows[r], or r where there is no list.
#pragma once

#include <cstddef>
#include <span>

#include "core/tensor.h"
#include "device/thread_pool.h"
#include "ops/context.h"
#include "ops/gemm/product_tasks.h"

namespace heddle::ops {

struct GroupedLinearArgs {
  TensorView x;       // [S, K]     fp32; without x_rows S = R
  TensorView weight;  // [E, N, K]  fp32, bf16 or fp16, in place: any alignment of whole elements;
                      //            or quantised, all experts alike
  TensorView row_offsets;          // [E + 1]    int32, from 0 to R, never falling
  TensorView x_rows = {};          // [R]        int32 in [0, S), or no data
  MutableTensorView y;             // [R, N]     fp32; must not overlap x
  std::span<std::byte> workspace;  // grouped_linear_workspace_bytes(...) bytes, any alignment
};

// Scratch for up to max_x_rows rows of x. Depends on the instructions of the context.
[[nodiscard]] int64_t grouped_linear_workspace_bytes(const CpuContext& context, int64_t max_x_rows,
                                                     int64_t num_experts, int64_t K, DType weight);

// Kernels and exactness as linear's; each expert gets the kernel for its own number of rows.
// Cost: streams the weights of experts that have rows. Allocates nothing.
// Error: kInvalidArgument, naming the tensor, the dimension or the index that does not fit.
Status grouped_linear(CpuContext& context, const GroupedLinearArgs& args);

// Unchecked grouped_linear(), for ops that build their own groups.
struct GroupedProduct {
  Product all;  // T rows of y; x, x_bf16 and x_rows as in Product; weight of expert 0; bias [E, N]
  int64_t expert_stride = 0;             // elements from one expert's weights to the next
  const int32_t* row_offsets = nullptr;  // [num_experts + 1]
  int64_t num_experts = 0;
};

// Lets product.all read the experts' weights [E, N, K], plain or quantised in one way.
void set_weight(Product& product, const TensorView& weight);

// Error: kInvalidArgument unless all experts are quantised alike, or not at all.
Status check_expert_weight(const char* op, const char* name, const TensorView& weight);

// Bytes of scratch multiply_groups takes.
[[nodiscard]] int64_t group_task_bytes(int64_t num_experts);

// x must have been prepared (prepare_x).
void multiply_groups(device::ThreadPool& pool, const GroupedProduct& groups,
                     const ProductOptions& options, std::span<std::byte> workspace);

}  // namespace heddle::ops
