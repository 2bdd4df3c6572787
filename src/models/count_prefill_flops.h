// SPDX-License-Identifier: Apache-2.0
// count_prefill_flops: the number of operations with which a model computes the beginning of a
// sequence, from its config and its weights' shapes. A multiplication and an addition are two
// operations.
//
// Per token: two operations for each weight that the token is multiplied by. Of the experts only
// those that the router chooses count; the embedding is a look-up, and the LM head runs for sampled
// tokens only. A recurrent layer adds kDeltaRuleFlops for each element of its matrices.
//
// Per pair of tokens and attention layer: 2 Nq D for the score and 2 Nq Dv for the sum of values.
//
// Threading: a pure function, used while a model loads.
#pragma once

#include "checkpoint/model_config.h"
#include "models/model.h"
#include "request/prefill_flops.h"

namespace heddle::models {

// Operations per matrix element in one step of the delta rule: S <- decay S (1), S'k (2), S <- S +
// k v' (2), S'q (2).
inline constexpr double kDeltaRuleFlops = 7;

// If layers have windows of different widths, all count as if they had the widest.
[[nodiscard]] request::PrefillFlops count_prefill_flops(const checkpoint::ModelConfig& config,
                                                        const Model& model);

}  // namespace heddle::models
