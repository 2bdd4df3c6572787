// SPDX-License-Identifier: Apache-2.0
// moe_route: which experts each token goes to, and with what weight.
//     p = softmax over all E of logits[t]; the k largest p, in falling order; optionally divided by
//     their sum
#pragma once

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

// More than any model asks for; bounds the kernel's own memory.
inline constexpr int64_t kMaxExpertsPerToken = 64;

struct MoeRouteArgs {
  TensorView logits;          // [T, E]  fp32; rows may be a column range
  MutableTensorView experts;  // [T, A]  int32, each row distinct ids in [0, E)
  MutableTensorView weights;  // [T, A]  fp32
  bool renormalize = true;    // weights of a token sum to 1
};

// Equal logits: the lower id first. A NaN logit is never preferred to a number; a token that has
// one (or an infinite one) gets valid, distinct ids and NaN weights. Each token alone, in one fixed
// order of operations: the same bits in any batch. Allocates nothing. Error: kInvalidArgument when
// shapes disagree or A is not in [1, min(E, 64)].
Status moe_route(Context& context, const MoeRouteArgs& args);
Status moe_route_cpu(CpuContext& context, const MoeRouteArgs& args);  // args already checked

}  // namespace heddle::ops
