// SPDX-License-Identifier: Apache-2.0
#include "ops/moe/routed_moe.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/gemm/grouped_linear.h"
#include "ops/gemm/product_contract.h"
#include "ops/gemm/skinny_product.h"
#include "ops/moe/device_scratch.h"
#include "ops/moe/few_experts.h"
#include "ops/moe/moe_route.h"
#include "ops/moe/routed_moe_sm90.h"
#include "ops/op_chain.h"
#include "ops/registry.h"

namespace heddle::ops {

int64_t routed_moe_workspace_bytes(const Context& context, int64_t max_T,
                                   const RoutedMoeShape& shape) {
  if (context.device == DeviceKind::kCuda) {
    const int64_t plain = MoeDeviceScratch(max_T, shape, ExpertProducts::kRows).total;
    const bool tiled = MoeDeviceScratch::tiles_pay(max_T, shape) &&
                       routed_moe_is_tiled(static_cast<const CudaContext&>(context), shape);
    return tiled ? std::max(plain, MoeDeviceScratch(max_T, shape, ExpertProducts::kTiled).total)
                 : plain;
  }
  return routed_moe_workspace_bytes_cpu(static_cast<const CpuContext&>(context), max_T, shape);
}

namespace {

// Whether the kernels for few tokens (few_experts.h) support the call.
bool are_few(const Context& context, const RoutedMoeArgs& args) {
  return context.device == DeviceKind::kCuda &&
         few_experts_add(static_cast<const CudaContext&>(context), args, args.x.shape[0]);
}

}  // namespace

Status routed_moe(Context& context, const RoutedMoeArgs& args) {
  Dim T{"T"}, H{"H"}, E{"E"}, I{"I"}, I2{"2I"}, own{"experts of the rank"}, terms{"A * H"};
  Dim* const experts = args.own ? &own : &E;
  ShapeContract contract("routed_moe");
  contract.expect("x", args.x, {&T, &H}, activations(context))
      .expect("router_logits", args.router_logits, {&T, &E}, DType::kF32)
      .expect("w13", args.w13, {experts, &I2, &H}, kWeights)
      .expect(
          "w2", args.w2, {experts, &H, &I},
          args.w13.dtype == DType::kPacked ? kWeights : DTypeSet(args.w13.dtype) | DType::kPacked)
      .expect("y", args.y, {&T, args.own && args.own->in_terms ? &terms : &H}, args.x.dtype);
  if (args.own) {
    contract
        .require(context.device == DeviceKind::kCpu, "own.first",
                 static_cast<double>(args.own->first), "be given on the CPU alone")
        .require(args.own->first >= 0 && args.own->first + own <= E, "own.first",
                 static_cast<double>(args.own->first), "leave the rank's experts among all")
        .require(!args.own->in_terms || terms == args.experts_per_token * H, "columns of y",
                 static_cast<double>(terms.value()), "be A times those of x");
  }
  if (args.w13_bias.data != nullptr) {
    contract.expect("w13_bias", args.w13_bias, {experts, &I2}, DType::kF32)
        .require(args.w13_bias.dense(), "w13_bias", 0, "be dense");
  }
  if (args.w2_bias.data != nullptr) {
    contract.expect("w2_bias", args.w2_bias, {experts, &H}, DType::kF32)
        .require(args.w2_bias.dense(), "w2_bias", 0, "be dense");
  }
  if (args.expert_scales.data != nullptr) {
    contract.expect("expert_scales", args.expert_scales, {&E}, DType::kF32);
  }
  contract.require(args.activation.form != ExpertForm::kBoundedSwiglu || args.activation.limit > 0,
                   "activation.limit", static_cast<double>(args.activation.limit), "be positive");
  contract.require(args.activation.limit >= 0, "activation.limit",
                   static_cast<double>(args.activation.limit), "be positive, or 0 for none");
  const bool gated = rows_per_hidden(args.activation.form) == 2;
  contract.require(gated ? I2 == 2 * I : I2 == I, "2I of w13", static_cast<double>(I2.value()),
                   gated ? "be twice I of w2" : "be I of w2, without a gate");
  require_row_stride(contract, "x", args.x);
  require_row_stride(contract, "router_logits", args.router_logits);
  require_row_stride(contract, "w13", args.w13);
  require_row_stride(contract, "w2", args.w2);
  require_row_stride(contract, "y", args.y);
  const int64_t A = args.experts_per_token;
  contract.require(A >= 1 && A <= E && A <= kMaxExpertsPerToken, "experts_per_token",
                   static_cast<double>(A), "be in [1, min(E, 64)]");
  if (args.shared) {
    Dim Is{"I of the shared expert"}, Is2{"2I of the shared expert"}, one{"1"};
    const SharedExpert& shared = *args.shared;
    contract.require(context.device == DeviceKind::kCuda, "shared", 0, "be used on CUDA alone")
        .expect("shared.gate_up", shared.gate_up, {&T, &Is2}, kFloating)
        .expect("shared.down", shared.down, {&H, &Is}, kWeights)
        .require(shared.down.packed == nullptr || are_few(context, args), "shared.down", 0,
                 "be plain, or quantised like w2 and for few tokens")
        .expect("shared.hidden", shared.hidden, {&T, &Is}, args.x.dtype)
        .expect("shared.y", shared.y, {&T, &H}, args.x.dtype)
        .require(Is2 == 2 * Is, "columns of shared.gate_up", static_cast<double>(Is2.value()),
                 "be twice those of shared.down");
    if (shared.gate.data != nullptr) {
      contract.expect("shared.gate", shared.gate, {&T, &one}, DType::kF32)
          .require(one == 1, "columns of shared.gate", static_cast<double>(one.value()), "be 1");
    }
  }
  if (args.residual.data != nullptr) {
    contract.expect("residual", args.residual, {&T, &H}, DType::kBf16)
        .require(are_few(context, args), "residual", 0, "be given on CUDA, for few tokens");
  }
  HEDDLE_RETURN_IF_ERROR(contract.status());
  HEDDLE_RETURN_IF_ERROR(check_scoring("routed_moe", args.scoring, args.correction, E, A));
  HEDDLE_RETURN_IF_ERROR(check_weight_device(context, "routed_moe", "w13", args.w13));
  HEDDLE_RETURN_IF_ERROR(check_weight_device(context, "routed_moe", "w2", args.w2));
  if (args.shared) {
    HEDDLE_RETURN_IF_ERROR(
        check_weight_device(context, "routed_moe", "shared.down", args.shared->down));
  }
  HEDDLE_RETURN_IF_ERROR(check_expert_weight("routed_moe", "w13", args.w13));
  HEDDLE_RETURN_IF_ERROR(check_expert_weight("routed_moe", "w2", args.w2));
  const RoutedMoeShape shape{.H = H,
                             .I = I,
                             .E = E,
                             .A = A,
                             .weight = expert_dtype(args.w13.dtype, args.w2.dtype),
                             .x = args.x.dtype};
  contract.require(
      static_cast<int64_t>(args.workspace.size()) >= routed_moe_workspace_bytes(context, T, shape),
      "workspace size", static_cast<double>(args.workspace.size()),
      "hold routed_moe_workspace_bytes(..., T, ...)");
  HEDDLE_RETURN_IF_ERROR(contract.status());
  return HEDDLE_DISPATCH_DEVICE(context, routed_moe, args);
}

namespace {

// Reads the activation from a node's attributes; most nodes have none of them.
ExpertActivation activation_of(const Attrs& attrs) {
  if (attrs.find("geglu").value_or(0) != 0) return {.form = ExpertForm::kGeglu};
  if (attrs.find("squared_relu").value_or(0) != 0) return {.form = ExpertForm::kSquaredRelu};
  const double limit = attrs.find("bounded_swiglu").value_or(0);
  if (limit == 0) return {};
  return {.form = ExpertForm::kBoundedSwiglu, .limit = static_cast<float>(limit)};
}

Status infer_routed_moe(std::span<const TensorMeta> inputs, const Attrs& attrs,
                        std::vector<TensorMeta>& outputs) {
  const TensorMeta& x = inputs[0];
  const TensorMeta& logits = inputs[1];
  const TensorMeta& w13 = inputs[2];
  const TensorMeta& w2 = inputs[3];
  const int64_t parts = rows_per_hidden(activation_of(attrs).form);
  const std::optional<double> first = attrs.find("first_expert");
  const bool fits = x.rank == 2 && logits.rank == 2 && w13.rank == 3 && w2.rank == 3 &&
                    logits[0] == x[0] && w2[0] == w13[0] &&
                    (first ? static_cast<int64_t>(*first) + w13[0].offset <= logits[1].offset
                           : w13[0] == logits[1]) &&
                    w13[2] == x[1] && w2[1] == x[1] && w13[1].offset == parts * w2[2].offset;
  if (!fits) {
    return invalid_argument(fmt::format(
        "routed_moe takes [T, H], [T, E], [E, {}I, H] and [E, H, I], got {}, {}, {} and {}",
        parts == 2 ? "2" : "", x.to_string(), logits.to_string(), w13.to_string(), w2.to_string()));
  }
  const int64_t top_k = attrs.integer("top_k");
  if (top_k < 1 || top_k > logits[1].offset) {
    return invalid_argument(
        fmt::format("routed_moe: {} of {} experts per token", top_k, logits[1].offset));
  }
  outputs.push_back(x);
  if (attrs.find("terms").value_or(0) != 0) {
    outputs.back().dims[1] = SymbolicDim::fixed(top_k * x[1].offset);
  }
  return {};
}

Status infer_routed_moe_scaled(std::span<const TensorMeta> inputs, const Attrs& attrs,
                               std::vector<TensorMeta>& outputs) {
  HEDDLE_RETURN_IF_ERROR(infer_routed_moe(inputs.first(4), attrs, outputs));
  if (inputs[4] == TensorMeta(DType::kF32, {inputs[1][1]})) return {};
  return invalid_argument(fmt::format("routed_moe_scaled: the scales are {}, router logits are {}",
                                      inputs[4].to_string(), inputs[1].to_string()));
}

Status infer_routed_moe_bias(std::span<const TensorMeta> inputs, const Attrs& attrs,
                             std::vector<TensorMeta>& outputs) {
  HEDDLE_RETURN_IF_ERROR(infer_routed_moe(inputs.first(4), attrs, outputs));
  const TensorMeta& w13 = inputs[2];
  const TensorMeta& w2 = inputs[3];
  if (!(inputs[4] == TensorMeta(DType::kF32, {w13[0], w13[1]})) ||
      !(inputs[5] == TensorMeta(DType::kF32, {w2[0], w2[1]}))) {
    return invalid_argument(fmt::format(
        "routed_moe_bias takes float32 biases [E, 2I] and [E, H], got {} and {} beside {} and {}",
        inputs[4].to_string(), inputs[5].to_string(), w13.to_string(), w2.to_string()));
  }
  return {};
}

RouterScoring scoring_of(const Attrs& attrs) {
  const RouterScore score =
      attrs.integer("sigmoid") != 0 ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  const std::optional<double> nearness = attrs.find("nearness");
  return {.score = nearness ? RouterScore::kSparsemixer : score,
          .num_groups = attrs.integer("groups"),
          .groups_kept = attrs.integer("groups_kept"),
          .group_terms = attrs.integer("group_terms"),
          .scale = static_cast<float>(attrs.real("scale")),
          .sum_epsilon = static_cast<float>(attrs.find("sum_epsilon").value_or(1e-20)),
          .nearness = static_cast<float>(nearness.value_or(0))};
}

Status infer_scored_moe(std::span<const TensorMeta> inputs, const Attrs& attrs,
                        std::vector<TensorMeta>& outputs) {
  HEDDLE_RETURN_IF_ERROR(infer_routed_moe(inputs.first(4), attrs, outputs));
  return check_scoring("routed_moe_scored", scoring_of(attrs), {}, inputs[1][1].offset,
                       attrs.integer("top_k"));
}

Status infer_corrected_moe(std::span<const TensorMeta> inputs, const Attrs& attrs,
                           std::vector<TensorMeta>& outputs) {
  HEDDLE_RETURN_IF_ERROR(infer_scored_moe(inputs, attrs, outputs));
  if (!(inputs[4] == TensorMeta(DType::kF32, {inputs[1][1]}))) {
    return invalid_argument(
        fmt::format("routed_moe_corrected: the correction is {}, router logits are {}",
                    inputs[4].to_string(), inputs[1].to_string()));
  }
  return {};
}

int64_t routed_moe_workspace(std::span<const TensorMeta> inputs, const Attrs& attrs,
                             const Extents& largest, const Context& context) {
  return routed_moe_workspace_bytes(context, inputs[0][0].at(largest),
                                    {.H = inputs[0][1].offset,
                                     .I = inputs[3][2].offset,
                                     .E = inputs[1][1].offset,
                                     .A = attrs.integer("top_k"),
                                     .weight = expert_dtype(inputs[2].dtype, inputs[3].dtype),
                                     .x = inputs[0].dtype});
}

std::optional<OwnExperts> own_experts_of(const Attrs& attrs) {
  const std::optional<double> first = attrs.find("first_expert");
  if (!first) return {};
  return OwnExperts{.first = static_cast<int64_t>(*first),
                    .in_terms = attrs.find("terms").value_or(0) != 0};
}

RoutedMoeArgs args_of(const LaunchArgs& args) {
  return {.x = args.inputs[0],
          .router_logits = args.inputs[1],
          .w13 = args.inputs[2],
          .w2 = args.inputs[3],
          .y = args.outputs[0],
          .activation = activation_of(args.attrs),
          .experts_per_token = args.attrs.integer("top_k"),
          .renormalize = args.attrs.integer("normalize") != 0,
          .own = own_experts_of(args.attrs),
          .row_sequences = args.forward.batch.row_sequences,
          .workspace = args.workspace};
}

Status launch_routed_moe(Context& context, const LaunchArgs& args) {
  return routed_moe(context, args_of(args));
}

Status launch_routed_moe_scaled(Context& context, const LaunchArgs& args) {
  RoutedMoeArgs moe = args_of(args);
  moe.expert_scales = args.inputs[4];
  return routed_moe(context, moe);
}

Status launch_routed_moe_bias(Context& context, const LaunchArgs& args) {
  RoutedMoeArgs moe = args_of(args);
  moe.w13_bias = args.inputs[4];
  if (args.attrs.find("adds_w2_bias").value_or(1) != 0) moe.w2_bias = args.inputs[5];
  moe.activation = {.limit = static_cast<float>(args.attrs.real("swiglu_limit")),
                    .alpha = static_cast<float>(args.attrs.real("swiglu_alpha"))};
  return routed_moe(context, moe);
}

RoutedMoeArgs scored_args_of(const LaunchArgs& args) {
  RoutedMoeArgs moe = args_of(args);
  moe.scoring = scoring_of(args.attrs);
  if (args.inputs.size() > 4) moe.correction = args.inputs[4];
  return moe;
}

Status launch_scored_moe(Context& context, const LaunchArgs& args) {
  return routed_moe(context, scored_args_of(args));
}

// The arguments for a chain of routed experts, then silu_mul and linear of the shared expert, the
// sigmoid_mul of its gate if it has one, and the sum. nullopt if no kernel computes this together.
std::optional<RoutedMoeArgs> args_with_shared(const Context& context,
                                              std::span<const ChainedOp> chain) {
  const bool scored = chain[0].op->name != "routed_moe";
  RoutedMoeArgs moe = scored ? scored_args_of(chain[0].args) : args_of(chain[0].args);
  const LaunchArgs& hidden = chain[1].args;
  const LaunchArgs& down = chain[2].args;
  const bool has_gate = chain.size() == 5;
  if (down.inputs.size() > 2) return {};
  moe.y = chain.back().args.outputs[0];
  moe.shared = {.gate_up = hidden.inputs[0],
                .down = down.inputs[1],
                .gate = has_gate ? chain[3].args.inputs[1] : TensorView(),
                .hidden = hidden.outputs[0],
                .y = down.outputs[0]};
  if (down.inputs[1].packed != nullptr && !are_few(context, moe)) return {};
  return moe;
}

Result<bool> launch_with_shared(Context& context, std::span<const ChainedOp> chain) {
  const std::optional<RoutedMoeArgs> moe = args_with_shared(context, chain);
  if (!moe) return false;
  HEDDLE_RETURN_IF_ERROR(routed_moe(context, *moe));
  return true;
}

// The same chain, followed by the sum with the residual, its norm and the products that read it.
Result<bool> launch_before_products(Context& context, std::span<const ChainedOp> chain) {
  size_t num_experts = 0;
  while (chain[num_experts].op->name != "add_rms_norm") ++num_experts;
  std::optional<RoutedMoeArgs> moe = args_with_shared(context, chain.first(num_experts));
  if (!moe) return false;
  auto& cuda = static_cast<CudaContext&>(context);
  const NormedProducts normed(chain.subspan(num_experts));
  moe->read_next = normed.first_weight();
  if (are_few(cuda, *moe) && normed.fit_with_norm(cuda)) {
    moe->residual = normed.residual();
    HEDDLE_RETURN_IF_ERROR(routed_moe(context, *moe));
    HEDDLE_RETURN_IF_ERROR(normed.launch_together(cuda));
    return true;
  }
  HEDDLE_RETURN_IF_ERROR(routed_moe(context, *moe));
  HEDDLE_RETURN_IF_ERROR(normed.fit(cuda) ? normed.launch(cuda)
                                          : launch_each(context, chain.subspan(num_experts)));
  return true;
}

}  // namespace

std::span<const OpDef> moe_ops() {
  static const OpDef kOps[] = {{.name = "routed_moe",
                                .effects = kReadsContext,
                                .coverage = WriteCoverage::kRealRows,
                                .num_inputs = 4,
                                .infer = infer_routed_moe,
                                .workspace_bytes = routed_moe_workspace,
                                .launch = launch_routed_moe},
                               {.name = "routed_moe_bias",
                                .effects = kReadsContext,
                                .coverage = WriteCoverage::kRealRows,
                                .num_inputs = 6,
                                .infer = infer_routed_moe_bias,
                                .workspace_bytes = routed_moe_workspace,
                                .launch = launch_routed_moe_bias},
                               {.name = "routed_moe_scaled",
                                .effects = kReadsContext,
                                .coverage = WriteCoverage::kRealRows,
                                .num_inputs = 5,
                                .infer = infer_routed_moe_scaled,
                                .workspace_bytes = routed_moe_workspace,
                                .launch = launch_routed_moe_scaled},
                               {.name = "routed_moe_scored",
                                .effects = kReadsContext,
                                .coverage = WriteCoverage::kRealRows,
                                .num_inputs = 4,
                                .infer = infer_scored_moe,
                                .workspace_bytes = routed_moe_workspace,
                                .launch = launch_scored_moe},
                               {.name = "routed_moe_corrected",
                                .effects = kReadsContext,
                                .coverage = WriteCoverage::kRealRows,
                                .num_inputs = 5,
                                .infer = infer_corrected_moe,
                                .workspace_bytes = routed_moe_workspace,
                                .launch = launch_scored_moe}};
  return kOps;
}

std::span<const OpChain> moe_chains() {
  using Name = std::string_view;
  using Link = OpChain::Link;
  static constexpr Name kGated[] = {"routed_moe", "silu_mul",     "linear", "sigmoid_mul",
                                    "add",        "add_rms_norm", "linear", "linear"};
  static constexpr Link kGatedLinks[] = {{.from = 0, .to = 4, .input = 0},
                                         {.from = 1, .to = 2, .input = 0},
                                         {.from = 2, .to = 3, .input = 0},
                                         {.from = 3, .to = 4, .input = 1},
                                         {.from = 4, .to = 5, .input = 1},
                                         {.from = 5, .to = 6, .output = 1, .shared = true},
                                         {.from = 5, .to = 7, .output = 1, .shared = true}};
  static constexpr Name kScored[] = {"routed_moe_scored", "silu_mul", "linear", "add",
                                     "add_rms_norm",      "linear",   "linear"};
  static constexpr Name kCorrected[] = {"routed_moe_corrected", "silu_mul", "linear", "add",
                                        "add_rms_norm",         "linear",   "linear"};
  static constexpr Link kScoredLinks[] = {{.from = 0, .to = 3, .input = 0},
                                          {.from = 1, .to = 2, .input = 0},
                                          {.from = 2, .to = 3, .input = 1},
                                          {.from = 3, .to = 4, .input = 1},
                                          {.from = 4, .to = 5, .output = 1, .shared = true},
                                          {.from = 4, .to = 6, .output = 1, .shared = true}};
  constexpr auto first = [](auto& list, size_t count) { return std::span(list).first(count); };
  static constexpr OpChain kChains[] = {
      {.ops = kGated, .links = kGatedLinks, .launch = launch_before_products},
      {.ops = first(kGated, 7), .links = first(kGatedLinks, 6), .launch = launch_before_products},
      {.ops = first(kGated, 5), .links = first(kGatedLinks, 4), .launch = launch_with_shared},
      {.ops = kScored, .links = kScoredLinks, .launch = launch_before_products},
      {.ops = first(kScored, 6), .links = first(kScoredLinks, 5), .launch = launch_before_products},
      {.ops = first(kScored, 4), .links = first(kScoredLinks, 3), .launch = launch_with_shared},
      {.ops = kCorrected, .links = kScoredLinks, .launch = launch_before_products},
      {.ops = first(kCorrected, 6),
       .links = first(kScoredLinks, 5),
       .launch = launch_before_products},
      {.ops = first(kCorrected, 4), .links = first(kScoredLinks, 3), .launch = launch_with_shared}};
  return kChains;
}

}  // namespace heddle::ops
