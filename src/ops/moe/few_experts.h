// SPDX-License-Identifier: Apache-2.0
// Computes a few tokens through their experts on CUDA. When nearly every (token, slot) pair has a
// different expert, sorting saves nothing, and two launches suffice: the first product with its
// activation, and the second product with the sum over a token's experts.
//
// Cost: reads 3 * A * I * H weights for each token, even if tokens share experts. One token of the
// 80B model (H 2048, I 512, A 10): 63 MB in bf16, 15 us at an H200's 4.2 TB/s; eight: 112 us for
// the distinct experts. Measured there with routing: 21 and 124 us. One token with quantised
// weights, predicted from bytes and instructions and measured: fp8 in blocks 14 and 19 us, mxfp4 14
// and 24, 4-bit integers 14 and 24; without these kernels 57, 65 and 64. The weights of a token's
// first experts are loaded before its last experts are chosen: predicted to save 0.6 us of 22.9, it
// saves 1.8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/context.h"
#include "ops/moe/routed_moe.h"

namespace heddle::ops {

struct FewExpertsArgs {
  const RoutedMoeArgs* moe = nullptr;  // weights, activation and further arguments of the op
  TensorView x;                        // [T, H] the few tokens
  MutableTensorView y;                 // outputs of the few tokens [T, H]
  int32_t* experts = nullptr;          // [T, A]: ids of the tokens' experts
  float* weights = nullptr;            // [T, A]: weights of the tokens' experts
  // [T, E] router logits: the kernel chooses the experts; without memory: they are given.
  TensorView logits = {};
  std::byte* hidden = nullptr;  // [T, A, I] of x's dtype: scratch, 16-byte aligned
  // shared expert for these tokens; its scratch is not used
  std::optional<SharedExpert> shared = {};
  // [T], sequence of each of these tokens, -1 for padding; null: no padding.
  const int32_t* row_sequences = nullptr;
};

// Whether run_few_experts() supports T tokens of this call: x in bf16; weights in bf16, or
// quantised with one code in groups of 8 times a power of two, or one group for a row; rows of a
// multiple of 8 weights, those of w2 of up to 1,024 weights, or of 1,281 to 1,536, 1,793 to 2,048
// or 2,817 to 3,072; a shared expert of the same width and format; and few enough tokens. Not
// integer codes in exact mode.
[[nodiscard]] bool few_experts_fit(const CudaContext& context, const RoutedMoeArgs& args,
                                   int64_t T);

// Whether it can also add y to a residual; a warp then holds one number of the row in each lane.
[[nodiscard]] bool few_experts_add(const CudaContext& context, const RoutedMoeArgs& args,
                                   int64_t T);

// Whether run_few_experts() can also choose the experts as moe_route() does: by a softmax of at
// most 512 scores.
[[nodiscard]] bool few_experts_route(const RoutedMoeArgs& args);

// Sums have the order of row_products() and of the router, and the activation is rounded to bf16:
// the bits are those of the same token in a larger step without tensor cores. Integer codes are
// summed differently (few_experts_kernel.cuh). Error: kDeviceLost.
Status run_few_experts(CudaContext& context, const FewExpertsArgs& args);

}  // namespace heddle::ops
