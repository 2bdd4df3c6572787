// SPDX-License-Identifier: Apache-2.0
// A few tokens through their experts on CUDA: where nearly every (token, slot) pair has an expert
// of its own, sorting brings nothing, and two launches do: the first product with its activation,
// and the second with the sum over a token's experts.
//
// Cost: 3 * A * I * H numbers of weights a token, whatever experts the others have. One token of
// the 80B model (H 2048, I 512, A 10): 63 MB in bf16, 15 us at an H200's 4.2 TB/s; eight: 112 us
// for the distinct experts. Measured there with routing: 21 and 124 us. One token with quantised
// weights, predicted from bytes and instructions and measured: fp8 in blocks 14 and 19 us, mxfp4 14
// and 24, 4-bit integers 14 and 24; without these kernels 57, 65 and 64. That a token's first rows
// are loaded before its last experts are chosen was predicted to save 0.6 us of 22.9 and saves 1.8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/context.h"
#include "ops/moe/routed_moe.h"

namespace heddle::ops {

struct FewExpertsArgs {
  const RoutedMoeArgs* moe = nullptr;       // provides weights and activation
  TensorView x;                             // [T, H]
  MutableTensorView y;                      // [T, H]
  int32_t* experts = nullptr;               // [T, A]: those of the tokens
  float* weights = nullptr;                 // [T, A]: theirs
  TensorView logits = {};                   // [T, E], or none; with them the experts are found
  std::byte* hidden = nullptr;              // [T, A, I] of x's dtype: scratch, on 16 bytes
  std::optional<SharedExpert> shared = {};  // for these tokens; its scratch is not used
  const int32_t* row_sequences = nullptr;   // [T], of these tokens; null: none is padding
};

// Whether run_few_experts() takes T tokens of the call: x in bf16; weights in bf16, or quantised
// with one code in groups of whole octets, a power of two of them, or one group for a row; rows of
// whole octets, those of w2 of up to 1,024 numbers, or of 1,281 to 1,536, 1,793 to 2,048 or 2,817
// to 3,072, a shared expert as wide and of the same format, and few enough tokens. Not integer
// codes in exact mode.
[[nodiscard]] bool few_experts_fit(const CudaContext& context, const RoutedMoeArgs& args,
                                   int64_t T);

// Whether it can also add y to a residual, of which a warp holds a number in each lane.
[[nodiscard]] bool few_experts_add(const CudaContext& context, const RoutedMoeArgs& args,
                                   int64_t T);

// Whether run_few_experts() also finds the experts, as moe_route() does: by a softmax of at most
// 512 scores.
[[nodiscard]] bool few_experts_route(const RoutedMoeArgs& args);

// Sums in the order of row_products() and of the router, the activation rounded to bf16: the bits
// that the same token has in a larger step without tensor cores. Integer codes have sums of their
// own (few_experts_kernel.cuh). Error: kDeviceLost.
Status run_few_experts(CudaContext& context, const FewExpertsArgs& args);

}  // namespace heddle::ops
