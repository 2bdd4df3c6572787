// SPDX-License-Identifier: Apache-2.0
#include "ops/moe/moe_ops.h"

#include <fmt/format.h>

#include "ops/moe/routed_moe.h"

namespace heddle::ops {

namespace {

Status infer_routed_moe(std::span<const TensorMeta> inputs, const Attrs& attrs,
                        std::vector<TensorMeta>& outputs) {
  const TensorMeta& x = inputs[0];
  const TensorMeta& logits = inputs[1];
  const TensorMeta& w13 = inputs[2];
  const TensorMeta& w2 = inputs[3];
  const bool fits = x.rank == 2 && logits.rank == 2 && w13.rank == 3 && w2.rank == 3 &&
                    logits[0] == x[0] && w13[0] == logits[1] && w2[0] == logits[1] &&
                    w13[2] == x[1] && w2[1] == x[1] && w13[1].offset == 2 * w2[2].offset &&
                    w13.dtype == w2.dtype;
  if (!fits) {
    return invalid_argument(fmt::format(
        "routed_moe takes [T, H], [T, E], [E, 2I, H] and [E, H, I], got {}, {}, {} and {}",
        x.to_string(), logits.to_string(), w13.to_string(), w2.to_string()));
  }
  const int64_t top_k = attrs.integer("top_k");
  if (top_k < 1 || top_k > logits[1].offset) {
    return invalid_argument(
        fmt::format("routed_moe: {} of {} experts per token", top_k, logits[1].offset));
  }
  outputs.push_back(x);
  return {};
}

int64_t routed_moe_workspace(std::span<const TensorMeta> inputs, const Attrs& attrs,
                             const Extents& largest, const Context& context) {
  return routed_moe_workspace_bytes(inputs[0][0].at(largest),
                                    {.H = inputs[0][1].offset,
                                     .I = inputs[3][2].offset,
                                     .E = inputs[1][1].offset,
                                     .A = attrs.integer("top_k"),
                                     .weight = inputs[2].dtype},
                                    context.exact);
}

Status launch_routed_moe(Context& context, const LaunchArgs& args) {
  return routed_moe(context, {.x = args.inputs[0],
                              .router_logits = args.inputs[1],
                              .w13 = args.inputs[2],
                              .w2 = args.inputs[3],
                              .y = args.outputs[0],
                              .experts_per_token = args.attrs.integer("top_k"),
                              .renormalize = args.attrs.integer("normalize") != 0,
                              .workspace = args.workspace});
}

}  // namespace

std::span<const OpDef> moe_ops() {
  static const OpDef kOps[] = {{.name = "routed_moe",
                                .num_inputs = 4,
                                .infer = infer_routed_moe,
                                .workspace_bytes = routed_moe_workspace,
                                .launch = launch_routed_moe}};
  return kOps;
}

}  // namespace heddle::ops
