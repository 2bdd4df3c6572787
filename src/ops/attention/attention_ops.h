// SPDX-License-Identifier: Apache-2.0
// The ops of attention layers as the graph sees them:
//
//   paged_attention        {q, k, v}         num_kv_heads, head_dim, scale, window, layer
//   paged_attention_sinks  {q, k, v, sinks}  the same
//
// `layer` is an index into ForwardContext::kv_layers.
#pragma once

#include <span>

#include "ops/op_def.h"

namespace heddle::ops {

std::span<const OpDef> attention_ops();

}  // namespace heddle::ops
