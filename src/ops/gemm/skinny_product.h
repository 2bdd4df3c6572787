// SPDX-License-Identifier: Apache-2.0
// Products of up to 16 rows with weights in bf16 or quantised, on CUDA: the projections of a decode
// step of few sequences. bf16 and large 8-bit weights are read at memory speed. Quantised weights
// are multiplied as dequantised numbers; x is used as it is, or with integer codes rounded to
// integers of 15 bits. Sums have another order than in row_products(), so fast mode only; a row's
// bits do not depend on the other rows.
//
// A step of few rows is a sequence of small kernels, each of which waits for the previous one. To
// save launches, a product kernel also computes the ops between it and the next product: it adds
// its result to the residual, and it normalises x first or, with a single row, gates it. Every
// block computes x again: reading its rows from the second-level cache takes less time than a
// launch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "ops/context.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gemm/linear.h"
#include "ops/norm/rms_norm.h"
#include "ops/op_chain.h"

namespace heddle::ops {

inline constexpr int64_t kSkinnyRows = 16;

// Most products that can share one x in a launch; further weights follow the first one's rows.
inline constexpr size_t kSkinnyProducts = 2;

struct SkinnyProducts {
  std::span<const LinearArgs> products;  // the products of the launch; all have the same x

  // The op that computes x: a norm, or, for a single row, a gate; at most one of them is set. The
  // norm has no residual, and its y, which is x, is written; the gate's is not.
  std::optional<RmsNormArgs> norm = {};
  std::optional<ElementwiseArgs> gate = {};

  // [T, N] bf16, or without memory. If set, the first product is rounded and added to it, and the
  // product's own y is not written.
  MutableTensorView residual = {};
};

// Whether the kernel supports these arguments: up to kSkinnyRows rows of bf16, 16-byte aligned, K a
// multiple of 32, x small enough for a block's shared memory (16 rows of 6,656 numbers on an H200,
// of 6,144 for integer codes, of some 5,000 where 8-bit codes have 48 MiB or more). Quantised
// weights may have at most four parts, none of them plain, all with the same code, E4M3 or integers
// of 8 or 4 bits; groups of a power of two of at least 64 columns, or one for a row; K a multiple
// of 64.
[[nodiscard]] bool skinny_products_fit(const CudaContext& context, const SkinnyProducts& args);

// Computes the same bits as the ops one by one. Weights are read before the previous kernel has
// ended, so that kernel must not write any of them. Floor: the weights' bytes, 12 us for 12,288 x
// 2,048 at 4.2 TB/s. Measured on an H200: 14.6 us for one row, 15.5 for eight; for an LM head of
// 151,936 x 2,048 141 and 146 (floor: 148).
Status skinny_products(CudaContext& context, const SkinnyProducts& args);

// The norm and the products that read it, in an op chain that ends in them.
class NormedProducts {
 public:
  // `ops` are "rms_norm" or "add_rms_norm", then "linear" once or twice.
  explicit NormedProducts(std::span<const ChainedOp> ops);

  // Whether skinny_products() supports the products.
  [[nodiscard]] bool fit(const CudaContext& context) const;
  [[nodiscard]] bool fit_with_norm(const CudaContext& context) const;

  // Launches all ops; requires fit().
  Status launch(CudaContext& context) const;

  // Launches norm and products as one kernel, if it supports them. For an "add_rms_norm",
  // residual() must contain the sum already.
  Status launch_together(CudaContext& context) const;

  [[nodiscard]] const MutableTensorView& residual() const { return residual_; }

  [[nodiscard]] const TensorView& first_weight() const { return products_[0].weight; }

 private:
  [[nodiscard]] SkinnyProducts products() const {
    return {.products = std::span(products_).first(ops_.size() - 1)};
  }

  [[nodiscard]] SkinnyProducts with_norm() const {
    SkinnyProducts all = products();
    all.norm = norm_;
    return all;
  }

  std::span<const ChainedOp> ops_;
  // The residual of an "add_rms_norm"; without memory for an "rms_norm".
  MutableTensorView residual_;
  RmsNormArgs norm_;  // the norm of x, or of the residual
  std::array<LinearArgs, kSkinnyProducts> products_;
};

}  // namespace heddle::ops
