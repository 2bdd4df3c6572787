// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/rms_norm.h"

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/op_chain.h"
#include "ops/registry.h"

namespace heddle::ops {

Status rms_norm(Context& context, const RmsNormArgs& args) {
  Dim T{"T"}, W{"G*H"}, H{"H"};
  ShapeContract contract("rms_norm");
  contract.expect("x", args.x, {&T, &W}, activations(context))
      .expect("weight", args.weight, {&H}, DType::kF32)
      .expect("y", args.y, {&T, &W}, args.x.dtype)
      .require(args.epsilon > 0, "epsilon", args.epsilon, "be positive");
  if (args.residual.data != nullptr) {
    contract.expect("residual", args.residual, {&T, &W}, args.x.dtype);
  }
  HEDDLE_RETURN_IF_ERROR(contract.status());
  if (H == 0 || W % H != 0) {
    return invalid_argument(fmt::format(
        "rms_norm: x has {} columns, not a multiple of the weight's H = {}", W.value(), H.value()));
  }
  return HEDDLE_DISPATCH_DEVICE(context, rms_norm, args);
}

namespace {

Status infer_norm(const TensorMeta& x, const TensorMeta& weight) {
  if (x.rank != 2 || weight.rank != 1 || !x[1].is_fixed()) {
    return invalid_argument(fmt::format("rms_norm takes [T, G*H] and [H], got {} and {}",
                                        x.to_string(), weight.to_string()));
  }
  if (weight[0].offset <= 0 || x[1].offset % weight[0].offset != 0) {
    return invalid_argument(fmt::format("rms_norm: x is {}, not a multiple of the weight's {}",
                                        x.to_string(), weight.to_string()));
  }
  return {};
}

Status infer_rms_norm(std::span<const TensorMeta> inputs, const Attrs&,
                      std::vector<TensorMeta>& outputs) {
  HEDDLE_RETURN_IF_ERROR(infer_norm(inputs[0], inputs[1]));
  outputs.push_back(inputs[0]);
  return {};
}

Status infer_add_rms_norm(std::span<const TensorMeta> inputs, const Attrs&,
                          std::vector<TensorMeta>& outputs) {
  if (!(inputs[0] == inputs[1])) {
    return invalid_argument(fmt::format("add_rms_norm: the residual is {}, x is {}",
                                        inputs[0].to_string(), inputs[1].to_string()));
  }
  HEDDLE_RETURN_IF_ERROR(infer_norm(inputs[0], inputs[2]));
  outputs.push_back(inputs[0]);
  outputs.push_back(inputs[0]);
  return {};
}

Status launch_rms_norm(Context& context, const LaunchArgs& args) {
  return rms_norm(context, rms_norm_args(args));
}

Status launch_add_rms_norm(Context& context, const LaunchArgs& args) {
  return rms_norm(context, add_rms_norm_args(args));
}

constexpr OpDef::Alias kResidualInPlace[] = {{.output = 0, .input = 0, .mutates = true}};

}  // namespace

RmsNormArgs rms_norm_args(const LaunchArgs& args) {
  return {.x = args.inputs[0],
          .weight = args.inputs[1],
          .y = args.outputs[0],
          .epsilon = static_cast<float>(args.attrs.real("epsilon"))};
}

RmsNormArgs add_rms_norm_args(const LaunchArgs& args) {
  return {.x = args.inputs[1],
          .residual = args.outputs[0],
          .weight = args.inputs[2],
          .y = args.outputs[1],
          .epsilon = static_cast<float>(args.attrs.real("epsilon"))};
}

namespace {

// A norm followed by logit_rows: if the logits of all rows are wanted, the norm writes them
// directly.
Result<bool> launch_wanted_rows(Context& context, std::span<const ChainedOp> chain) {
  const LaunchArgs& norm_args = chain[0].args;
  const bool adds = chain[0].op->name == "add_rms_norm";
  RmsNormArgs norm = adds ? add_rms_norm_args(norm_args) : rms_norm_args(norm_args);
  if (!norm_args.forward.wants_all_rows(norm.x.shape[0])) return false;
  norm.y = chain[1].args.outputs[0];
  HEDDLE_RETURN_IF_ERROR(rms_norm(context, norm));
  return true;
}

}  // namespace

std::span<const OpChain> norm_chains() {
  using Name = std::string_view;
  using Link = OpChain::Link;
  static constexpr Name kNorm[] = {"rms_norm", "logit_rows"};
  static constexpr Link kNormLinks[] = {{.from = 0, .to = 1}};
  static constexpr Name kAdded[] = {"add_rms_norm", "logit_rows"};
  static constexpr Link kAddedLinks[] = {{.from = 0, .to = 1, .output = 1}};
  static constexpr OpChain kChains[] = {
      {.ops = kNorm, .links = kNormLinks, .launch = launch_wanted_rows},
      {.ops = kAdded, .links = kAddedLinks, .launch = launch_wanted_rows}};
  return kChains;
}

std::span<const OpDef> norm_ops() {
  static const OpDef kOps[] = {
      {.name = "rms_norm", .num_inputs = 2, .infer = infer_rms_norm, .launch = launch_rms_norm},
      {.name = "add_rms_norm",
       .num_inputs = 3,
       .aliases = kResidualInPlace,
       .infer = infer_add_rms_norm,
       .launch = launch_add_rms_norm},
  };
  return kOps;
}

}  // namespace heddle::ops
