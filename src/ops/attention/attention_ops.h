// SPDX-License-Identifier: Apache-2.0
// The ops of attention layers as the graph sees them:
//
//   paged_attention        {q, k, v}         num_kv_heads, head_dim, scale, window, layer
//   paged_attention_sinks  {q, k, v, sinks}  the same
//   latent_attention       {q, latent}       value_dim, scale, layer
//   absorb_query           {q, weight}       num_heads, key_dim
//   expand_values          {o, weight}       num_heads, key_dim
//
// The last two turn queries per head into queries of latent rows, and what latent attention gives
// back into values per head (latent_projection.h).
//
// In latent attention all heads of q [T, Nq*D] attend to one row [T, D] per token, whose first
// value_dim channels are the value: -> [T, Nq*value_dim]. Prefill and decode take the same path, in
// the absorbed form; on the CPU expanding a prompt's latents to keys and values per head would save
// about 70% of attention's products at DeepSeek-V3's sizes, and cost that both give the same bits.
// `layer` is an index into ForwardContext::kv_layers.
#pragma once

#include <span>

#include "ops/op_def.h"

namespace heddle::ops {

std::span<const OpDef> attention_ops();

}  // namespace heddle::ops
