// SPDX-License-Identifier: Apache-2.0
#include "ops/op_chain.h"

#include <algorithm>
#include <vector>

namespace heddle::ops {

std::span<const OpChain> op_chains(const Context& context) {
  if (context.device != DeviceKind::kCuda || context.exact) return {};
  static const std::vector<OpChain> kChains = [] {
    std::vector<OpChain> all;
    for (const auto& chains : {attention_chains(), linear_attention_chains(), moe_chains()}) {
      all.insert(all.end(), chains.begin(), chains.end());
    }
    std::ranges::stable_sort(all, std::ranges::greater(),
                             [](const OpChain& chain) { return chain.ops.size(); });
    return all;
  }();
  return kChains;
}

}  // namespace heddle::ops
