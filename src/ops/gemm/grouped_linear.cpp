// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/grouped_linear.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/gemm/product_contract.h"

namespace heddle::ops {

int64_t grouped_linear_workspace_bytes(const CpuContext& context, int64_t max_x_rows,
                                       int64_t num_experts, int64_t K, DType weight) {
  return group_task_bytes(num_experts) +
         rounded_bytes(max_x_rows, K, weight, product_options(context));
}

namespace {

// The product of one expert; only experts with rows have one.
struct GroupTask {
  int64_t first_task = 0;
  Product product;
  ProductKernel kernel = ProductKernel::kRowDot;
  TaskGrid grid;
};

Status check_rows(const GroupedLinearArgs& args) {
  const int64_t R = args.y.shape[0];
  const auto* offsets = args.row_offsets.as<int32_t>();
  const int64_t E = args.weight.shape[0];
  if (offsets[0] != 0 || offsets[E] != R) {
    return invalid_argument(
        fmt::format("grouped_linear: row_offsets run from {} to {}, they must run from 0 to R = {}",
                    offsets[0], offsets[E], R));
  }
  for (int64_t e = 0; e < E; ++e) {
    if (offsets[e + 1] < offsets[e]) {
      return invalid_argument(
          fmt::format("grouped_linear: row_offsets fall from {} to {} at expert {}", offsets[e],
                      offsets[e + 1], e));
    }
  }
  if (args.x_rows.data != nullptr) {
    const auto* rows = args.x_rows.as<int32_t>();
    const int64_t S = args.x.shape[0];
    for (int64_t r = 0; r < R; ++r) {
      if (rows[r] < 0 || rows[r] >= S) {
        return invalid_argument(
            fmt::format("grouped_linear: x_rows[{}] is {}, x has {} rows", r, rows[r], S));
      }
    }
  }
  return ok_status();
}

}  // namespace

void set_weight(Product& product, const TensorView& weight) {
  product.weight_dtype = weight.dtype;
  if (weight.packed != nullptr) {
    product.packed = &weight.packed->parts[0].packed;
    return;
  }
  product.weight = weight.data;
  product.weight_stride = weight.shape[2];
}

Status check_expert_weight(const char* op, const char* name, const TensorView& weight) {
  if (weight.packed == nullptr) return ok_status();
  const auto& parts = weight.packed->parts;
  if (parts.size() == 1 && parts[0].packed.codes != nullptr) return ok_status();
  return invalid_argument(fmt::format(
      "{}: {} is stored in {} ways; all experts must be quantised alike", op, name, parts.size()));
}

int64_t group_task_bytes(int64_t num_experts) {
  return num_experts * static_cast<int64_t>(sizeof(GroupTask)) + 64;
}

void multiply_groups(device::ThreadPool& pool, const GroupedProduct& groups,
                     const ProductOptions& options, std::span<std::byte> workspace) {
  HEDDLE_CHECK_LE(group_task_bytes(groups.num_experts), static_cast<int64_t>(workspace.size()));
  auto* tasks = reinterpret_cast<GroupTask*>(align_to_line(workspace.data()));
  const Product& all = groups.all;

  int64_t num_active = 0;
  for (int64_t e = 0; e < groups.num_experts; ++e) {
    num_active += groups.row_offsets[e + 1] > groups.row_offsets[e] ? 1 : 0;
  }
  if (num_active == 0) return;
  const int64_t wanted = (wanted_tasks(pool.num_threads()) + num_active - 1) / num_active;

  int64_t num_tasks = 0;
  GroupTask* end = tasks;
  for (int64_t e = 0; e < groups.num_experts; ++e) {
    const int64_t begin_row = groups.row_offsets[e];
    const int64_t T = groups.row_offsets[e + 1] - begin_row;
    if (T == 0) continue;
    Product product = all;
    product.T = T;
    product.y += begin_row * all.y_stride;
    if (all.packed != nullptr) {
      product.packed_row += e * all.N;
    } else {
      product.weight = static_cast<const std::byte*>(all.weight) +
                       bytes_of(all.weight_dtype, e * groups.expert_stride);
    }
    if (all.bias != nullptr) product.bias += e * all.N;
    if (all.x_rows != nullptr) {
      product.x_rows += begin_row;
    } else {
      product.x += begin_row * all.x_stride;
      if (all.x_bf16 != nullptr) product.x_bf16 += begin_row * all.x_bf16_stride;
      if (all.x_int8 != nullptr) product.x_int8 += begin_row * all.x_int8_stride;
    }
    const ProductKernel kernel = choose_kernel(T, all, options);
    const TaskGrid grid = split_product(kernel, product, wanted);
    *end++ = {.first_task = num_tasks, .product = product, .kernel = kernel, .grid = grid};
    num_tasks += grid.num_tasks;
  }

  pool.parallel_for(num_tasks, [&](int64_t task, int) {
    const GroupTask* group =
        std::upper_bound(tasks, end, task,
                         [](int64_t index, const GroupTask& g) { return index < g.first_task; }) -
        1;
    run_kernel(group->kernel, group->product,
               group->grid.block(task - group->first_task, group->product));
  });
}

Status grouped_linear(CpuContext& context, const GroupedLinearArgs& args) {
  Dim S{"S"}, K{"K"}, E{"E"}, N{"N"}, R{"R"}, E1{"E + 1"};
  ShapeContract contract("grouped_linear");
  contract.expect("x", args.x, {&S, &K}, DType::kF32)
      .expect("weight", args.weight, {&E, &N, &K}, kWeights)
      .expect("y", args.y, {&R, &N}, DType::kF32)
      .expect("row_offsets", args.row_offsets, {&E1}, DType::kI32);
  if (args.x_rows.data != nullptr) contract.expect("x_rows", args.x_rows, {&R}, DType::kI32);
  require_row_stride(contract, "x", args.x);
  require_row_stride(contract, "weight", args.weight);
  require_row_stride(contract, "y", args.y);
  contract.require(E1 == E + 1, "the number of row_offsets", static_cast<double>(E1.value()),
                   "be one more than the experts of weight");
  contract.require(args.x_rows.data != nullptr || S == R, "R of y", static_cast<double>(R.value()),
                   "be the rows of x where there are no x_rows");
  HEDDLE_RETURN_IF_ERROR(contract.status());
  HEDDLE_RETURN_IF_ERROR(check_expert_weight("grouped_linear", "weight", args.weight));
  const int64_t needed = grouped_linear_workspace_bytes(context, S, E, K, args.weight.dtype);
  HEDDLE_RETURN_IF_ERROR(contract
                             .require(static_cast<int64_t>(args.workspace.size()) >= needed,
                                      "workspace size", static_cast<double>(args.workspace.size()),
                                      "hold grouped_linear_workspace_bytes(..., S, E, K, ...)")
                             .status());
  HEDDLE_RETURN_IF_ERROR(check_rows(args));
  const ProductOptions options = product_options(context);
  GroupedProduct groups{.all = {.x = args.x.as<float>(),
                                .x_stride = args.x.row_stride,
                                .x_rows = args.x_rows.as<int32_t>(),
                                .y = args.y.as<float>(),
                                .y_stride = args.y.row_stride,
                                .T = args.y.shape[0],
                                .K = K,
                                .N = args.weight.shape[1]},
                        .expert_stride = args.weight.row_stride,
                        .row_offsets = args.row_offsets.as<int32_t>(),
                        .num_experts = args.weight.shape[0]};
  const auto task_bytes = static_cast<size_t>(group_task_bytes(groups.num_experts));
  set_weight(groups.all, args.weight);
  prepare_x(context.pool, groups.all, S, options, args.workspace.subspan(task_bytes));
  multiply_groups(context.pool, groups, options, args.workspace.first(task_bytes));
  return ok_status();
}

}  // namespace heddle::ops
