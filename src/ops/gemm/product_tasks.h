// SPDX-License-Identifier: Apache-2.0
// The choice of the kernel that computes a product, and the division of products into tasks for the
// thread pool. Shared by linear and grouped_linear.
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
  bool exact = false;                // every row has the same bits whatever is computed beside it
  ProductInstructions instructions;  // none in exact mode
};

// The options that a context of the CPU implies.
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

// Whether products with these weights read x rounded to bf16.
[[nodiscard]] inline bool rounds_x(DType weight, const ProductOptions& options) {
  return weight == DType::kBf16 && (options.instructions.bf16 || options.instructions.tiles);
}

// For T rows of this product's x and weights.
[[nodiscard]] ProductKernel choose_kernel(int64_t T, const Product& product,
                                          const ProductOptions& options);

void run_kernel(ProductKernel kernel, const Product& product, const Block& block);

// A product cut into blocks of equal size, but for the last ones.
struct TaskGrid {
  int64_t rows = 1;     // rows of a block
  int64_t columns = 1;  // columns of a block
  int64_t num_column_blocks = 0;
  int64_t num_tasks = 0;

  [[nodiscard]] Block block(int64_t task, const Product& product) const;
};

// About `wanted_tasks` blocks, fewer where they would be too small to be worth handing out.
[[nodiscard]] TaskGrid split_product(ProductKernel kernel, const Product& product,
                                     int64_t wanted_tasks);

// Tasks for `num_threads` to share: several each, because threads are not equally fast.
[[nodiscard]] int64_t wanted_tasks(int num_threads);

// Bytes for `rows` rows of x rounded for weights of this dtype, and alignment; 0 where products
// read x itself.
[[nodiscard]] int64_t rounded_bytes(int64_t rows, int64_t K, DType weight,
                                    const ProductOptions& options);

// Rounds the first `rows` rows of product.x into `workspace`, using the pool, if its kernel reads
// bf16 or 8-bit numbers.
void prepare_x(device::ThreadPool& pool, Product& product, int64_t rows,
               const ProductOptions& options, std::span<std::byte> workspace);

// Computes `product` on the pool. `workspace` holds rounded_bytes(product.T, ...).
void multiply(device::ThreadPool& pool, Product product, const ProductOptions& options,
              std::span<std::byte> workspace);

// The first 64-byte boundary at or after `data`.
[[nodiscard]] std::byte* align_to_line(std::byte* data);

}  // namespace heddle::ops
