// SPDX-License-Identifier: Apache-2.0
#include "ops/op_chain.h"

#include <algorithm>
#include <vector>

namespace heddle::ops {

Status launch_each(Context& context, std::span<const ChainedOp> ops) {
  for (const ChainedOp& op : ops) {
    HEDDLE_RETURN_IF_ERROR(op.op->launch(context, op.args).with_context(op.op->name));
  }
  return {};
}

std::span<const OpChain> op_chains(const Context& context) {
  if (context.device != DeviceKind::kCuda || context.exact) return {};
  static const std::vector<OpChain> kChains = [] {
    std::vector<OpChain> all;
    for (const auto& chains : {attention_chains(), gemm_chains(), linear_attention_chains(),
                               moe_chains(), norm_chains()}) {
      all.insert(all.end(), chains.begin(), chains.end());
    }
    std::ranges::stable_sort(all, std::ranges::greater(),
                             [](const OpChain& chain) { return chain.ops.size(); });
    return all;
  }();
  return kChains;
}

}  // namespace heddle::ops
