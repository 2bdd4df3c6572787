// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/layer_norm.h"

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/registry.h"

namespace heddle::ops {

Status layer_norm(Context& context, const LayerNormArgs& args) {
  Dim T{"T"}, H{"H"};
  ShapeContract contract("layer_norm");
  contract.expect("x", args.x, {&T, &H}, activations(context))
      .expect("weight", args.weight, {&H}, DType::kF32)
      .expect("y", args.y, {&T, &H}, args.x.dtype)
      .require(args.epsilon > 0, "epsilon", args.epsilon, "be positive");
  if (args.bias.data != nullptr) contract.expect("bias", args.bias, {&H}, DType::kF32);
  HEDDLE_RETURN_IF_ERROR(contract.status());
  return HEDDLE_DISPATCH_DEVICE(context, layer_norm, args);
}

namespace {

Status infer_layer_norm(std::span<const TensorMeta> inputs, const Attrs&,
                        std::vector<TensorMeta>& outputs) {
  const TensorMeta& x = inputs[0];
  for (const TensorMeta& weight : inputs.subspan(1)) {
    if (x.rank == 2 && weight == TensorMeta(DType::kF32, {x[1]})) continue;
    return invalid_argument(fmt::format("layer_norm takes [T, H] and float32[H], got {} and {}",
                                        x.to_string(), weight.to_string()));
  }
  outputs.push_back(x);
  return {};
}

Status launch_layer_norm(Context& context, const LaunchArgs& args) {
  return layer_norm(context, {.x = args.inputs[0],
                              .weight = args.inputs[1],
                              .bias = args.inputs.size() > 2 ? args.inputs[2] : TensorView(),
                              .y = args.outputs[0],
                              .epsilon = static_cast<float>(args.attrs.real("epsilon"))});
}

}  // namespace

std::span<const OpDef> layer_norm_ops() {
  static const OpDef kOps[] = {
      {.name = "layer_norm",
       .num_inputs = 2,
       .infer = infer_layer_norm,
       .launch = launch_layer_norm},
      {.name = "layer_norm_bias",
       .num_inputs = 3,
       .infer = infer_layer_norm,
       .launch = launch_layer_norm},
  };
  return kOps;
}

}  // namespace heddle::ops
