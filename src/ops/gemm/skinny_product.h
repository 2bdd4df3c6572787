// SPDX-License-Identifier: Apache-2.0
// Products of up to 16 rows with weights in bf16 or quantised, on CUDA: the projections of a decode
// step of few sequences, bf16 and large 8-bit ones at the speed of memory. Quantised weights are
// multiplied as the numbers they stand for; x as it is, with integer codes as integers of 15 bits.
// Sums run in another order than those of row_products(), so fast mode only; a row's bits do not
// depend on the others.
//
// A step of few rows is a chain of small kernels, each of which waits for the one before it. There
// a product also does what lies between it and the next one: it adds its rows to the residual on
// the way out, and normalises x, or gates a single row, on the way in. Every block makes x for
// itself: to read rows again from the second-level cache takes less time than a launch.
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

// Products of one x, at most: further weights follow the first one's rows.
inline constexpr size_t kSkinnyProducts = 2;

struct SkinnyProducts {
  std::span<const LinearArgs> products;  // all with the same x

  // The op that makes x, one of them or none, a gate for one row alone. The x of a norm, which has
  // no residual, is written; that of a gate is not.
  std::optional<RmsNormArgs> norm = {};
  std::optional<ElementwiseArgs> gate = {};

  // [T, N] bf16, or none: the first product is rounded and added to it, and is not written itself.
  MutableTensorView residual = {};
};

// Whether the arguments have this form: up to kSkinnyRows rows of bf16 on 16 bytes, K a multiple of
// 32, x small enough for a block's shared memory (16 rows of 6,656 numbers on an H200, of 6,144 for
// integer codes, of some 5,000 where 8-bit codes have 48 MiB or more). Of quantised weights four
// parts at most, none of them plain, with the same code, E4M3 or integers of 8 or 4 bits; groups of
// a power of two of at least 64 columns, or one for a row; K a multiple of 64.
[[nodiscard]] bool skinny_products_fit(const CudaContext& context, const SkinnyProducts& args);

// As the ops one by one, bit for bit, but weights are read before the kernel ahead has ended: none
// may be written by it. Floor: the weights' bytes, 12 us for 12,288 x 2,048 at 4.2 TB/s. Measured
// on an H200: 14.6 us for one row, 15.5 for eight, and 141 and 146 for a head of 151,936 x 2,048
// (148).
Status skinny_products(CudaContext& context, const SkinnyProducts& args);

// A norm and the products that read it, of a chain that ends in them.
class NormedProducts {
 public:
  // `ops`: "rms_norm" or "add_rms_norm", then "linear" once or twice.
  explicit NormedProducts(std::span<const ChainedOp> ops);

  // Whether the products fit together, and whether they do with the norm in them.
  [[nodiscard]] bool fit(const CudaContext& context) const;
  [[nodiscard]] bool fit_with_norm(const CudaContext& context) const;

  // All ops, where the products fit.
  Status launch(CudaContext& context) const;

  // Norm and products in one launch, where they fit. The sum of an "add_rms_norm" lies in
  // residual() already.
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
  RmsNormArgs norm_;  // the norm of the residual, or of its own x
  std::array<LinearArgs, kSkinnyProducts> products_;
};

}  // namespace heddle::ops
