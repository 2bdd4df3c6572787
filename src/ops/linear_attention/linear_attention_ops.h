// SPDX-License-Identifier: Apache-2.0
// The ops of linear-attention layers as the graph sees them:
//
//   causal_conv1d     {x, weight}                          layer
//   gated_delta_rule  {qkv, a, b, neg_exp_a_log, dt_bias}  num_key_heads, key_dim, value_dim, layer
//   gated_rms_norm    {x, z, weight}                       epsilon
//   sigmoid_gated_rms_norm  the same
//
// With a and dt_bias key_dim times as wide as b, the decay of gated_delta_rule is one per key
// channel.
// `layer` is an index into ForwardContext::state_layers.
#pragma once

#include <span>

#include "ops/op_def.h"

namespace heddle::ops {

std::span<const OpDef> linear_attention_ops();

}  // namespace heddle::ops
