// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention_ops.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/gemm/gemm_ops.h"
#include "ops/layout/layout.h"
#include "ops/linear_attention/linear_attention_ops.h"
#include "ops/moe/moe_ops.h"
#include "ops/norm/rms_norm.h"
#include "ops/registry.h"
#include "ops/rope/rope.h"

namespace heddle::ops {

const OpRegistry& builtin_ops() {
  static const OpRegistry kRegistry = [] {
    OpRegistry registry;
    registry.add(attention_ops());
    registry.add(elementwise_ops());
    registry.add(embedding_ops());
    registry.add(gemm_ops());
    registry.add(layout_ops());
    registry.add(linear_attention_ops());
    registry.add(moe_ops());
    registry.add(norm_ops());
    registry.add(rope_ops());
    return registry;
  }();
  return kRegistry;
}

}  // namespace heddle::ops
