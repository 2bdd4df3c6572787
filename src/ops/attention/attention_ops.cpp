// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/attention_ops.h"

#include <fmt/format.h>

#include "ops/attention/paged_attention.h"

namespace heddle::ops {

namespace {

Status infer_paged_attention(std::span<const TensorMeta> inputs, const Attrs& attrs,
                             std::vector<TensorMeta>& outputs) {
  const TensorMeta &q = inputs[0], &k = inputs[1], &v = inputs[2];
  const int64_t Nkv = attrs.integer("num_kv_heads");
  const int64_t D = attrs.integer("head_dim");
  if (q.rank != 2 || !q[1].is_fixed() || k.rank != 2 || !(k == v) || !(k[0] == q[0])) {
    return invalid_argument(
        fmt::format("paged_attention takes [T, Nq*D], [T, Nkv*D] and [T, Nkv*D], got {}, {} and {}",
                    q.to_string(), k.to_string(), v.to_string()));
  }
  if (Nkv <= 0 || D <= 0 || !(k[1] == SymbolicDim::fixed(Nkv * D))) {
    return invalid_argument(fmt::format("paged_attention: k is {}, not {} kv heads of width {}",
                                        k.to_string(), Nkv, D));
  }
  if (q[1].offset <= 0 || q[1].offset % (Nkv * D) != 0) {
    return invalid_argument(fmt::format(
        "paged_attention: q is {}, its heads of width {} cannot share {} kv heads evenly",
        q.to_string(), D, Nkv));
  }
  if (attrs.integer("window") < 0) {
    return invalid_argument(
        fmt::format("paged_attention: the window is {}", attrs.integer("window")));
  }
  outputs.push_back(q);
  return {};
}

Status infer_paged_attention_sinks(std::span<const TensorMeta> inputs, const Attrs& attrs,
                                   std::vector<TensorMeta>& outputs) {
  HEDDLE_RETURN_IF_ERROR(infer_paged_attention(inputs.first(3), attrs, outputs));
  const TensorMeta& sinks = inputs[3];
  const int64_t num_heads = inputs[0][1].offset / attrs.integer("head_dim");
  if (sinks.rank != 1 || sinks.dtype != DType::kF32 ||
      !(sinks[0] == SymbolicDim::fixed(num_heads))) {
    return invalid_argument(
        fmt::format("paged_attention_sinks: sinks are {}, there are {} query heads",
                    sinks.to_string(), num_heads));
  }
  return {};
}

int64_t paged_attention_workspace(std::span<const TensorMeta> inputs, const Attrs& attrs,
                                  const Extents& largest, const Context& context) {
  return paged_attention_workspace_bytes(context, inputs[0][0].at(largest),
                                         attrs.integer("head_dim"));
}

Status launch_paged_attention(Context& context, const LaunchArgs& args) {
  const auto layer = static_cast<size_t>(args.attrs.integer("layer"));
  if (layer >= args.forward.kv_layers.size()) {
    return invalid_argument(fmt::format("paged_attention: layer {} of {} KV layers", layer,
                                        args.forward.kv_layers.size()));
  }
  return paged_attention(context, {.q = args.inputs[0],
                                   .k = args.inputs[1],
                                   .v = args.inputs[2],
                                   .y = args.outputs[0],
                                   .num_kv_heads = args.attrs.integer("num_kv_heads"),
                                   .head_dim = args.attrs.integer("head_dim"),
                                   .scale = static_cast<float>(args.attrs.real("scale")),
                                   .window = args.attrs.integer("window"),
                                   .sinks = args.inputs.size() > 3 ? args.inputs[3] : TensorView(),
                                   .kv = args.forward.kv_layers[layer],
                                   .forward = &args.forward,
                                   .workspace = args.workspace});
}

}  // namespace

std::span<const OpDef> attention_ops() {
  static const OpDef kOps[] = {
      {.name = "paged_attention",
       .effects = kReadsContext | kWritesState | kSplit,
       .num_inputs = 3,
       .aliases = {},
       .infer = infer_paged_attention,
       .workspace_bytes = paged_attention_workspace,
       .launch = launch_paged_attention},
      {.name = "paged_attention_sinks",
       .effects = kReadsContext | kWritesState | kSplit,
       .num_inputs = 4,
       .aliases = {},
       .infer = infer_paged_attention_sinks,
       .workspace_bytes = paged_attention_workspace,
       .launch = launch_paged_attention},
  };
  return kOps;
}

}  // namespace heddle::ops
