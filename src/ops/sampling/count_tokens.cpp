// SPDX-License-Identifier: Apache-2.0
#include "ops/sampling/count_tokens.h"

#include <span>

namespace heddle::ops {

Status count_tokens(Context& context, const CountTokensArgs& args) {
  if (args.num_tokens == 0) return {};
  return HEDDLE_DISPATCH_DEVICE(context, count_tokens, args);
}

Status count_tokens_cpu(CpuContext& /*context*/, const CountTokensArgs& args) {
  for (const CountedToken& counted : std::span(args.tokens, static_cast<size_t>(args.num_tokens))) {
    const int32_t token =
        counted.id_row == CountedToken::kGiven ? counted.token : args.ids[counted.id_row];
    TokenCount& count = args.counts[counted.counts_row * args.vocab_size + token];
    if (count < kMostCounted) ++count;
  }
  return {};
}

}  // namespace heddle::ops
