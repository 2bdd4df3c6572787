// SPDX-License-Identifier: Apache-2.0
// The mixture-of-experts ops of a graph.
//     "routed_moe" {x [T, H], router_logits [T, E], w13 [E, 2I, H], w2 [E, H, I]} -> [T, H]
//                  attrs {top_k, normalize}
//     "routed_moe_bias" {the same, w13_bias [E, 2I] f32, w2_bias [E, H] f32} -> [T, H]
//                  attrs {top_k, normalize, swiglu_limit, swiglu_alpha}; a limit of 0 is plain
//                  SwiGLU
//     "routed_moe_scored" {as routed_moe} -> [T, H]
//                  attrs {top_k, normalize, sigmoid, groups, groups_kept, group_terms, scale}
//     "routed_moe_corrected" {as routed_moe, correction [E] f32} -> [T, H]
//                  attrs as routed_moe_scored
// The attributes of the last two are fields of RouterScoring (moe_route.h).
#pragma once

#include "ops/op_def.h"

namespace heddle::ops {

std::span<const OpDef> moe_ops();

}  // namespace heddle::ops
