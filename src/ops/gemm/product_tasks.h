// SPDX-License-Identifier: Apache-2.0
// Chooses the CPU kernel for a product and divides products into tasks for the thread pool. Shared
// by linear and grouped_linear.
#pragma once

#include <cstddef>
#include <span>

#include "ops/context.h"
#include "ops/gemm/bf16_product.h"
#include "ops/gemm/dnnl_product.h"
#include "ops/gemm/int8_product.h"
#include "ops/gemm/product.h"

namespace heddle::ops {

struct ProductOptions {
  bool exact = false;  // true: the bits of a row do not depend on the other rows
  // optional instructions that kernels may use; none in exact mode
  ProductInstructions instructions;
};

// The options for products in this context, which must be a CPU's.
[[nodiscard]] inline ProductOptions product_options(const Context& context) {
  HEDDLE_CHECK(context.device == DeviceKind::kCpu);
  return {.exact = context.exact, .instructions = static_cast<const CpuContext&>(context).products};
}

enum class ProductKernel {
  kRowDot,
  kPanel,
  kRowDotBf16,
  kPanelBf16,
  kPackedRowDot,
  kInt8Dot,
  kFp8Dot,
  kFp8DotBf16,
};

// Whether products with weights of this dtype round x to bf16 first.
[[nodiscard]] inline bool rounds_x(DType weight, const ProductOptions& options) {
  return weight == DType::kBf16 && (options.instructions.bf16 || options.instructions.tiles);
}

// The kernel for T rows with this product's K and weights.
[[nodiscard]] ProductKernel choose_kernel(int64_t T, const Product& product,
                                          const ProductOptions& options);

void run_kernel(ProductKernel kernel, const Product& product, const Block& block);

// A product divided into blocks of equal size, except for the last ones.
struct TaskGrid {
  int64_t rows = 1;     // rows of y in a block
  int64_t columns = 1;  // columns of y in a block
  int64_t num_column_blocks = 0;
  int64_t num_tasks = 0;

  [[nodiscard]] Block block(int64_t task, const Product& product) const;
};

// Divides a product into about `wanted_tasks` blocks, or fewer if these would be too small to be
// worth a task.
[[nodiscard]] TaskGrid split_product(ProductKernel kernel, const Product& product,
                                     int64_t wanted_tasks);

// Number of tasks to divide a product into: several for each thread, because threads are not
// equally fast.
[[nodiscard]] int64_t wanted_tasks(int num_threads);

// Bytes for `rows` rows of x rounded for weights of this dtype, alignment included; 0 if the
// kernels for such weights read x itself.
[[nodiscard]] int64_t rounded_bytes(int64_t rows, int64_t K, DType weight,
                                    const ProductOptions& options);

// If the product's kernel reads bf16 or 8-bit numbers, rounds the first `rows` rows of product.x
// into `workspace`, using the pool.
void prepare_x(device::ThreadPool& pool, Product& product, int64_t rows,
               const ProductOptions& options, std::span<std::byte> workspace);

// Computes `product` on the pool. `workspace` must have rounded_bytes(product.T, ...) bytes.
void multiply(device::ThreadPool& pool, Product product, const ProductOptions& options,
              std::span<std::byte> workspace);

// The first 64-byte boundary at or after `data`.
[[nodiscard]] std::byte* align_to_line(std::byte* data);

}  // namespace heddle::ops
