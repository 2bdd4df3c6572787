// SPDX-License-Identifier: Apache-2.0
// Products of up to four rows with bf16 weights on CUDA, at the speed of memory: the projections of
// a decode step of few sequences. Sums run in another order than those of row_products(), so fast
// mode only; a row's bits do not depend on the other rows.
//
// A step of one row is a chain of small kernels, each of which waits for the one before it. There a
// product also does what lies between it and the next one: it adds its row to the residual on the
// way out, and normalises or gates x on the way in. Every block makes x for itself: to read a row
// again from the second-level cache takes less time than a launch. With two rows and more that is
// no gain.
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

inline constexpr int64_t kSkinnyRows = 4;

// Products of one x, at most: further weights follow the first one's rows.
inline constexpr size_t kSkinnyProducts = 2;

struct SkinnyProducts {
  std::span<const LinearArgs> products;  // their x is the same tensor

  // The op that makes x, of one row, one of them or none. That of a norm, which has no residual, is
  // written; that of a gate is not.
  std::optional<RmsNormArgs> norm = {};
  std::optional<ElementwiseArgs> gate = {};

  // [1, N] bf16, or none: the first product is rounded and added to it, and is not written itself.
  MutableTensorView residual = {};
};

// A norm and the products that read it, of a chain that ends in them.
struct NormedProducts {
  MutableTensorView
      residual;      // of an "add_rms_norm", whose sum is made before; else without memory
  RmsNormArgs norm;  // of that residual, or of its own x
  std::array<LinearArgs, kSkinnyProducts> products;
  size_t num_products = 0;

  // `ops`: "rms_norm" or "add_rms_norm", then "linear" once or twice.
  explicit NormedProducts(std::span<const ChainedOp> ops);

  [[nodiscard]] SkinnyProducts args() const {
    return {.products = std::span(products).first(num_products), .norm = norm};
  }
};

// Whether the arguments have this form: up to kSkinnyRows rows of bf16, one where there is more
// than products, K a multiple of 256 up to 8,192, rows on 16 bytes.
[[nodiscard]] bool skinny_products_fit(const CudaContext& context, const SkinnyProducts& args);

// As the ops one by one, bit for bit, but weights are read before the kernel ahead has ended: none
// may be written by it. Floor: the weights' bytes, 12 us for 12,288 x 2,048 at 4.2 TB/s. Measured
// on an H200: 13.6 us, and 141 for a head of 151,936 x 2,048 (148).
Status skinny_products(CudaContext& context, const SkinnyProducts& args);

}  // namespace heddle::ops
