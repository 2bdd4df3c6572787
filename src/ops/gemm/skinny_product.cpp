// SPDX-License-Identifier: Apache-2.0
// Op chains of products of few rows with the ops between them: a gate, a sum, a norm.
#include "ops/gemm/skinny_product.h"

#include "ops/op_chain.h"

namespace heddle::ops {

namespace {

LinearArgs linear_args(const LaunchArgs& args) {
  return {.x = args.inputs[0], .weight = args.inputs[1], .y = args.outputs[0]};
}

std::optional<ElementwiseArgs> gate_args(const ChainedOp& op) {
  if (op.op->name == "sigmoid_mul") return sigmoid_mul_args(op.args);
  if (op.op->name == "silu_mul") return silu_mul_args(op.args);
  return {};
}

// A norm and the products that read it: one launch if the kernel can include the norm, else two.
Result<bool> launch_normed(Context& context, std::span<const ChainedOp> chain) {
  auto& cuda = static_cast<CudaContext&>(context);
  const NormedProducts normed(chain);
  if (!normed.fit(cuda)) return false;
  HEDDLE_RETURN_IF_ERROR(normed.launch(cuda));
  return true;
}

// A product, optionally of a gated x, and optionally with the following sum, norm and products.
Result<bool> launch_product(Context& context, std::span<const ChainedOp> chain) {
  auto& cuda = static_cast<CudaContext&>(context);
  const std::optional<ElementwiseArgs> gate = gate_args(chain[0]);
  const std::span<const ChainedOp> gate_op = chain.first(gate ? 1 : 0);
  chain = chain.subspan(gate_op.size());
  const LinearArgs product = linear_args(chain[0].args);
  SkinnyProducts first{.products = {&product, 1}, .gate = gate};
  chain = chain.subspan(1);
  if (chain.empty()) {
    if (!skinny_products_fit(cuda, first)) return false;
    HEDDLE_RETURN_IF_ERROR(skinny_products(cuda, first));
    return true;
  }
  const NormedProducts normed(chain);
  first.residual = normed.residual();
  const bool gate_fits = skinny_products_fit(cuda, first);
  if (!gate_fits) first.gate.reset();
  if (!skinny_products_fit(cuda, first) || !normed.fit_with_norm(cuda)) return false;
  if (!gate_fits) HEDDLE_RETURN_IF_ERROR(launch_each(context, gate_op));
  HEDDLE_RETURN_IF_ERROR(skinny_products(cuda, first));
  HEDDLE_RETURN_IF_ERROR(normed.launch_together(cuda));
  return true;
}

}  // namespace

NormedProducts::NormedProducts(std::span<const ChainedOp> ops) : ops_(ops) {
  if (ops[0].op->name == "add_rms_norm") {
    norm_ = add_rms_norm_args(ops[0].args);
    residual_ = norm_.residual;
    norm_.x = residual_;
    norm_.residual = {};
  } else {
    norm_ = rms_norm_args(ops[0].args);
  }
  for (size_t i = 1; i < ops.size(); ++i) products_[i - 1] = linear_args(ops[i].args);
}

bool NormedProducts::fit(const CudaContext& context) const {
  return skinny_products_fit(context, products());
}

bool NormedProducts::fit_with_norm(const CudaContext& context) const {
  return skinny_products_fit(context, with_norm());
}

Status NormedProducts::launch(CudaContext& context) const {
  if (residual_.data == nullptr && fit_with_norm(context)) return launch_together(context);
  HEDDLE_RETURN_IF_ERROR(launch_each(context, ops_.first(1)));
  return skinny_products(context, products());
}

Status NormedProducts::launch_together(CudaContext& context) const {
  return skinny_products(context, with_norm());
}

std::span<const OpChain> gemm_chains() {
  using Name = std::string_view;
  using Link = OpChain::Link;
  static constexpr Name kNorm[] = {"rms_norm", "linear", "linear"};
  static constexpr Link kNormLinks[] = {{.from = 0, .to = 1, .shared = true},
                                        {.from = 0, .to = 2, .shared = true}};
  // A product that is added to the residual, the norm of the sum and the products after it.
  static constexpr Name kAdded[] = {"linear", "add_rms_norm", "linear", "linear"};
  static constexpr Link kAddedLinks[] = {{.from = 0, .to = 1, .input = 1},
                                         {.from = 1, .to = 2, .output = 1, .shared = true},
                                         {.from = 1, .to = 3, .output = 1, .shared = true}};
  static constexpr Name kSigmoid[] = {"sigmoid_mul", "linear", "add_rms_norm", "linear", "linear"};
  static constexpr Name kSilu[] = {"silu_mul", "linear", "add_rms_norm", "linear", "linear"};
  static constexpr Link kGatedLinks[] = {{.from = 0, .to = 1},
                                         {.from = 1, .to = 2, .input = 1},
                                         {.from = 2, .to = 3, .output = 1, .shared = true},
                                         {.from = 2, .to = 4, .output = 1, .shared = true}};
  constexpr auto first = [](auto& list, size_t count) { return std::span(list).first(count); };
  static constexpr OpChain kChains[] = {
      {.ops = kNorm, .links = kNormLinks, .launch = launch_normed},
      {.ops = first(kNorm, 2), .links = first(kNormLinks, 1), .launch = launch_normed},
      {.ops = kAdded, .links = kAddedLinks, .launch = launch_product},
      {.ops = first(kAdded, 3), .links = first(kAddedLinks, 2), .launch = launch_product},
      {.ops = kSigmoid, .links = kGatedLinks, .launch = launch_product},
      {.ops = first(kSigmoid, 4), .links = first(kGatedLinks, 3), .launch = launch_product},
      {.ops = first(kSigmoid, 2), .links = first(kGatedLinks, 1), .launch = launch_product},
      {.ops = kSilu, .links = kGatedLinks, .launch = launch_product},
      {.ops = first(kSilu, 4), .links = first(kGatedLinks, 3), .launch = launch_product},
      {.ops = first(kSilu, 2), .links = first(kGatedLinks, 1), .launch = launch_product}};
  return kChains;
}

}  // namespace heddle::ops
