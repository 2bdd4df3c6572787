// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/product_tasks.h"

#include <algorithm>
#include <atomic>

#include "core/check.h"
#include "ops/gemm/fp8_bf16_product.h"
#include "ops/gemm/fp8_product.h"
#include "ops/gemm/panel_product.h"
#include "ops/gemm/row_dot.h"

namespace heddle::ops {

ProductInstructions ProductInstructions::fastest() {
  static const ProductInstructions kFastest{
      .bf16 = bf16_products_pay(), .int8 = has_int8_products(), .tiles = dnnl_products_pay()};
  return kFastest;
}

namespace {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// As panel_product_pays_from() for bf16 weights: a larger number, because row_dot_bf16() converts
// nothing.
int64_t bf16_panel_pays_from(int64_t K) {
  constexpr int64_t kShortK = 192;
  return K <= kShortK ? 10 : 24;
}

// A task should run for at least some microseconds, the time that handing it out and waiting for it
// cost.
constexpr int64_t kMinTaskWork = 128 * 1024;       // multiply-adds of a task
constexpr int64_t kMinTaskWeightBytes = 8 * 1024;  // weight bytes that a task streams from memory
constexpr int64_t kMaxTaskWeightBytes =
    // Upper bound of a task's weight bytes, so that waiting for the last task never takes long.
    256 * 1024;
constexpr int64_t kRowDotColumns =
    16;  // unit in which columns of y are divided into tasks: four tiles

// Rows from which converting weights to a panel of floats is faster than reading them packed.
constexpr int64_t kInt8PanelPaysFrom = 32;
constexpr int64_t kFp8PanelPaysFrom = 32;

bool reads_int8(const Product& product, const ProductOptions& options) {
  return product.packed != nullptr && options.instructions.int8 &&
         int8_product_takes(*product.packed);
}

bool reads_bf16_fp8(const Product& product, const ProductOptions& options) {
  return product.packed != nullptr && options.instructions.bf16 &&
         fp8_dot_bf16_takes(*product.packed);
}

ProductKernel choose_packed_kernel(int64_t T, const Product& product,
                                   const ProductOptions& options) {
  if (options.exact) return ProductKernel::kPackedRowDot;
  if (reads_int8(product, options)) {
    return T < kInt8PanelPaysFrom ? ProductKernel::kInt8Dot : ProductKernel::kPanel;
  }
  if (reads_bf16_fp8(product, options)) {
    return T < kFp8PanelPaysFrom ? ProductKernel::kFp8DotBf16 : ProductKernel::kPanel;
  }
  if (T >= panel_product_pays_from(product.K)) return ProductKernel::kPanel;
  return fp8_dot_takes(*product.packed) ? ProductKernel::kFp8Dot : ProductKernel::kPackedRowDot;
}

}  // namespace

ProductKernel choose_kernel(int64_t T, const Product& product, const ProductOptions& options) {
  if (product.packed != nullptr) return choose_packed_kernel(T, product, options);
  if (options.exact) return ProductKernel::kRowDot;
  const int64_t K = product.K;
  const bool bf16 = rounds_x(product.weight_dtype, options);
  const bool panel = K > 0 && T >= (bf16 ? bf16_panel_pays_from(K) : panel_product_pays_from(K));
  if (bf16) return panel ? ProductKernel::kPanelBf16 : ProductKernel::kRowDotBf16;
  return panel ? ProductKernel::kPanel : ProductKernel::kRowDot;
}

void run_kernel(ProductKernel kernel, const Product& product, const Block& block) {
  switch (kernel) {
    case ProductKernel::kRowDot:
      return row_dot(product, block);
    case ProductKernel::kPanel:
      return panel_product(product, block);
    case ProductKernel::kRowDotBf16:
      return row_dot_bf16(product, block);
    case ProductKernel::kPanelBf16:
      return panel_product_bf16(product, block);
    case ProductKernel::kPackedRowDot:
      return packed_row_dot(product, block);
    case ProductKernel::kInt8Dot:
      return int8_dot(product, block);
    case ProductKernel::kFp8Dot:
      return fp8_dot(product, block);
    case ProductKernel::kFp8DotBf16:
      return fp8_dot_bf16(product, block);
  }
}

Block TaskGrid::block(int64_t task, const Product& product) const {
  const int64_t row = task / num_column_blocks * rows;
  const int64_t column = task % num_column_blocks * columns;
  return {.row_begin = row,
          .row_end = std::min(row + rows, product.T),
          .column_begin = column,
          .column_end = std::min(column + columns, product.N)};
}

TaskGrid split_product(ProductKernel kernel, const Product& p, int64_t wanted) {
  const bool panel = kernel == ProductKernel::kPanel || kernel == ProductKernel::kPanelBf16;
  const int64_t unit = panel ? kPanelColumns : kRowDotColumns;
  const int64_t column_bytes = std::max<int64_t>(
      p.packed != nullptr ? p.packed->format.row_bytes() : bytes_of(p.weight_dtype, p.K), 1);
  const int64_t column_work = std::max<int64_t>(p.T * p.K, 1);

  // Columns: as many blocks as wanted, within the bounds for a block.
  int64_t columns = ceil_div(p.N, std::max<int64_t>(wanted, 1));
  const int64_t fewest =
      std::min(ceil_div(kMinTaskWork, column_work), ceil_div(kMinTaskWeightBytes, column_bytes));
  columns = std::clamp(columns, std::min(fewest, p.N),
                       std::max<int64_t>(kMaxTaskWeightBytes / column_bytes, unit));
  columns = ceil_div(std::max<int64_t>(columns, 1), unit) * unit;
  TaskGrid grid{.rows = p.T, .columns = columns};
  grid.num_column_blocks = ceil_div(p.N, columns);

  // Divides the rows, too, if the columns alone do not give every thread work.
  const int64_t row_blocks_wanted = wanted / std::max<int64_t>(grid.num_column_blocks, 1);
  if (row_blocks_wanted > 1) {
    constexpr int64_t kMinRows = 24;  // four tiles for each panel, or each pass over the weights
    const int64_t row_work = std::max<int64_t>(p.K * std::min(columns, p.N), 1);
    const int64_t rows =
        std::max({ceil_div(p.T, row_blocks_wanted), kMinRows, ceil_div(kMinTaskWork, row_work)});
    grid.rows = std::min(ceil_div(rows, 6) * 6, std::max<int64_t>(p.T, 1));
  }
  grid.num_tasks = grid.num_column_blocks * ceil_div(p.T, std::max<int64_t>(grid.rows, 1));
  return grid;
}

int64_t wanted_tasks(int num_threads) { return num_threads == 1 ? 1 : 6 * num_threads; }

std::byte* align_to_line(std::byte* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return data + ((address + 63) / 64 * 64 - address);
}

int64_t rounded_bytes(int64_t rows, int64_t K, DType weight, const ProductOptions& options) {
  if (weight == DType::kPacked) {
    // A part of a quantised weight may be plain (quant/packed_rows.h).
    const int64_t plain = rounded_bytes(rows, K, DType::kBf16, options);
    return std::max(plain, options.instructions.int8 ? rows * int8_row_bytes(K) + 64 : 0);
  }
  if (!rounds_x(weight, options)) return 0;
  return rows * bf16_row_width(K) * static_cast<int64_t>(sizeof(uint16_t)) + 64;
}

namespace {

// Calls round_row(row, address of the rounded row) for rows [0, rows) on the pool. The addresses
// are `row_bytes` apart; returns the first.
template <class Function>
std::byte* round_rows(device::ThreadPool& pool, int64_t rows, int64_t row_bytes,
                      std::span<std::byte> workspace, const Function& round_row) {
  std::byte* const rounded = align_to_line(workspace.data());
  HEDDLE_CHECK_LE(rounded + rows * row_bytes, workspace.data() + workspace.size());
  const int64_t rows_per_task = std::max<int64_t>(64 * 1024 / row_bytes, 1);
  pool.parallel_for(ceil_div(rows, rows_per_task), [&](int64_t task, int) {
    const int64_t end = std::min((task + 1) * rows_per_task, rows);
    for (int64_t row = task * rows_per_task; row < end; ++row) {
      round_row(row, rounded + row * row_bytes);
    }
  });
  return rounded;
}

}  // namespace

void prepare_x(device::ThreadPool& pool, Product& p, int64_t rows, const ProductOptions& options,
               std::span<std::byte> workspace) {
  if (p.K == 0) return;
  if (reads_int8(p, options)) {
    p.x_int8_stride = int8_row_bytes(p.K);
    p.x_int8 = round_rows(pool, rows, p.x_int8_stride, workspace, [&](int64_t row, std::byte* to) {
      quantise_row(p.x + row * p.x_stride, p.packed->format, to);
    });
  } else if (reads_bf16_fp8(p, options)) {
    p.x_bf16_stride = bf16_row_width(p.K);
    p.x_bf16 = reinterpret_cast<const uint16_t*>(
        round_rows(pool, rows, 2 * p.x_bf16_stride, workspace, [&](int64_t row, std::byte* to) {
          round_to_bf16_for_fp8(p.x + row * p.x_stride, p.K, reinterpret_cast<uint16_t*>(to));
        }));
  } else if (p.packed == nullptr && rounds_x(p.weight_dtype, options)) {
    p.x_bf16_stride = bf16_row_width(p.K);
    p.x_bf16 = reinterpret_cast<const uint16_t*>(
        round_rows(pool, rows, 2 * p.x_bf16_stride, workspace, [&](int64_t row, std::byte* to) {
          round_to_bf16(p.x + row * p.x_stride, p.K, reinterpret_cast<uint16_t*>(to));
        }));
  }
}

namespace {

// Computes the whole product by oneDNN, with rows divided evenly among tasks. Returns false if
// oneDNN reported an error for a part of it; then the caller computes it again with another kernel.
bool multiply_by_dnnl(device::ThreadPool& pool, const Product& product) {
  const int64_t num_tasks = std::min<int64_t>(pool.num_threads(), product.T / (kMinDnnlRows / 2));
  std::atomic<bool> done{true};
  pool.parallel_for(num_tasks, [&](int64_t task, int) {
    if (!dnnl_product(product, product.T * task / num_tasks, product.T * (task + 1) / num_tasks)) {
      done.store(false, std::memory_order_relaxed);
    }
  });
  return done.load(std::memory_order_relaxed);
}

}  // namespace

void multiply(device::ThreadPool& pool, Product product, const ProductOptions& options,
              std::span<std::byte> workspace) {
  const ProductKernel kernel = choose_kernel(product.T, product, options);
  if (product.packed == nullptr || kernel == ProductKernel::kInt8Dot ||
      kernel == ProductKernel::kFp8DotBf16) {
    prepare_x(pool, product, product.T, options, workspace);
  }
  if (product.x_bf16 != nullptr && options.instructions.tiles && dnnl_takes(product) &&
      multiply_by_dnnl(pool, product)) {
    return;
  }
  const TaskGrid grid = split_product(kernel, product, wanted_tasks(pool.num_threads()));
  pool.parallel_for(grid.num_tasks, [&](int64_t task, int) {
    run_kernel(kernel, product, grid.block(task, product));
  });
}

}  // namespace heddle::ops
