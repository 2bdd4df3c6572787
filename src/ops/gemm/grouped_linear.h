// SPDX-License-Identifier: Apache-2.0
// grouped_linear: a linear layer with a different weight for each group of rows, for mixtures of
// experts on the CPU (on CUDA, routed_moe has kernels for this). The rows of y are sorted by
// expert; those of expert e are row_offsets[e] <= r < row_offsets[e + 1]:
//     y[r, n] = sum over k of x[s, k] * weight[e, n, k]
// with s = x_rows[r], or s = r if x_rows is empty.
#pragma once

#include <cstddef>
#include <span>

#include "core/tensor.h"
#include "device/thread_pool.h"
#include "ops/context.h"
#include "ops/gemm/product_tasks.h"

namespace heddle::ops {

struct GroupedLinearArgs {
  TensorView x;  // [S, K]     fp32; S = R if there is no x_rows
  // [E, N, K] fp32, bf16 or fp16, read in place with any alignment of whole elements; or quantised,
  // with the same format for all experts
  TensorView weight;
  TensorView row_offsets;  // [E + 1]    int32, ascending from 0 to R
  TensorView x_rows = {};  // [R]        int32 in [0, S): row of x for each row of y; or no data
  MutableTensorView y;     // [R, N]     fp32; must not overlap x
  std::span<std::byte> workspace;  // grouped_linear_workspace_bytes(...) bytes, any alignment
};

// Bytes of workspace for up to max_x_rows rows of x. Depends on the context's instructions.
[[nodiscard]] int64_t grouped_linear_workspace_bytes(const CpuContext& context, int64_t max_x_rows,
                                                     int64_t num_experts, int64_t K, DType weight);

// Kernels and exactness are those of linear(); the kernel is chosen for each expert by its number
// of rows. Cost: streams the weights of experts that have rows. Allocates nothing. Error:
// kInvalidArgument, naming the tensor, the dimension or the index that does not fit.
Status grouped_linear(CpuContext& context, const GroupedLinearArgs& args);

// Arguments of multiply_groups(), for ops that build the groups themselves; they are not checked.
struct GroupedProduct {
  // T rows of y in all groups together; x, x_bf16 and x_rows as in Product; the weight of expert 0;
  // bias [E, N]
  Product all;
  int64_t expert_stride = 0;             // elements from one expert's weight to the next
  const int32_t* row_offsets = nullptr;  // [num_experts + 1]: first row of each expert
  int64_t num_experts = 0;
};

// Sets the weight of `product` to the experts' weights [E, N, K], which are plain or all quantised
// in the same format.
void set_weight(Product& product, const TensorView& weight);

// Error: kInvalidArgument unless all experts have the same quantised format, or none is quantised.
Status check_expert_weight(const char* op, const char* name, const TensorView& weight);

// Bytes of scratch memory that multiply_groups() needs.
[[nodiscard]] int64_t group_task_bytes(int64_t num_experts);

// Computes all groups. prepare_x() must have been called for x.
void multiply_groups(device::ThreadPool& pool, const GroupedProduct& groups,
                     const ProductOptions& options, std::span<std::byte> workspace);

}  // namespace heddle::ops
