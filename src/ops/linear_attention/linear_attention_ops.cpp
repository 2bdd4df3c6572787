// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "ops/linear_attention/causal_conv1d.h"
#include "ops/linear_attention/decayed_linear_attention.h"
#include "ops/linear_attention/delta_step_sm90.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/gated_rms_norm.h"
#include "ops/linear_attention/selective_scan.h"
#include "ops/linear_attention/snapshot_rows.h"
#include "ops/op_chain.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

// The state tensors of the layer that the node's attribute names.
Result<StateLayer> state_layer(const char* op, const LaunchArgs& args) {
  const auto layer = static_cast<size_t>(args.attrs.integer("layer"));
  if (layer >= args.forward.state_layers.size()) {
    return invalid_argument(fmt::format("{}: layer {} of {} state layers", op, layer,
                                        args.forward.state_layers.size()));
  }
  return args.forward.state_layers[layer];
}

// The pool for the layer's snapshots; empty if snapshots are stored in the state slots.
Result<SnapshotLayer> snapshot_layer(const char* op, const LaunchArgs& args) {
  if (args.forward.snapshot_layers.empty()) return SnapshotLayer();
  const auto layer = static_cast<size_t>(args.attrs.integer("layer"));
  if (layer >= args.forward.snapshot_layers.size()) {
    return invalid_argument(fmt::format("{}: layer {} of {} layers of snapshots", op, layer,
                                        args.forward.snapshot_layers.size()));
  }
  return args.forward.snapshot_layers[layer];
}

Status infer_causal_conv1d(std::span<const TensorMeta> inputs, const Attrs&,
                           std::vector<TensorMeta>& outputs) {
  const TensorMeta &x = inputs[0], &weight = inputs[1];
  if (x.rank != 2 || weight.rank != 2 || !(x[1] == weight[0]) || !weight[1].is_fixed()) {
    return invalid_argument(fmt::format("causal_conv1d takes [T, C] and [C, W], got {} and {}",
                                        x.to_string(), weight.to_string()));
  }
  if (weight[1].offset < 2 || weight[1].offset > 8) {
    return invalid_argument(fmt::format(
        "causal_conv1d: the weight is {}, W must lie between 2 and 8", weight.to_string()));
  }
  if (inputs.size() > 2 && (inputs[2].rank != 1 || !(inputs[2][0] == x[1]))) {
    return invalid_argument(fmt::format("causal_conv1d_bias: the bias is {}, the rows are {}",
                                        inputs[2].to_string(), x.to_string()));
  }
  outputs.push_back(x);
  return {};
}

Result<CausalConv1dArgs> conv_args(const LaunchArgs& args) {
  HEDDLE_ASSIGN_OR_RETURN(const StateLayer state, state_layer("causal_conv1d", args));
  HEDDLE_ASSIGN_OR_RETURN(const SnapshotLayer snapshots, snapshot_layer("causal_conv1d", args));
  return CausalConv1dArgs{.x = args.inputs[0],
                          .weight = args.inputs[1],
                          .bias = args.inputs.size() > 2 ? args.inputs[2] : TensorView(),
                          .y = args.outputs[0],
                          .silu = args.attrs.find("silu").value_or(1) != 0,
                          .state = state,
                          .snapshots = snapshots,
                          .forward = &args.forward};
}

Status launch_causal_conv1d(Context& context, const LaunchArgs& args) {
  HEDDLE_ASSIGN_OR_RETURN(const CausalConv1dArgs conv, conv_args(args));
  return causal_conv1d(context, conv);
}

Status infer_gated_delta_rule(std::span<const TensorMeta> inputs, const Attrs& attrs,
                              std::vector<TensorMeta>& outputs) {
  const TensorMeta &qkv = inputs[0], &a = inputs[1], &b = inputs[2];
  const int64_t Nk = attrs.integer("num_key_heads");
  const int64_t Dk = attrs.integer("key_dim");
  const int64_t Dv = attrs.integer("value_dim");
  if (qkv.rank != 2 || a.rank != 2 || b.rank != 2 || !(a[0] == qkv[0]) || !(b[0] == qkv[0]) ||
      !b[1].is_fixed() || !(a[1] == b[1] || a[1] == SymbolicDim::fixed(b[1].offset * Dk))) {
    return invalid_argument(
        fmt::format("gated_delta_rule takes qkv [T, 2*Nk*Dk + Nv*Dv], a [T, Nv] or [T, Nv*Dk] and "
                    "b [T, Nv], got {}, {} and {}",
                    qkv.to_string(), a.to_string(), b.to_string()));
  }
  if (a.dtype != DType::kF32 || b.dtype != DType::kF32) {
    return invalid_argument(
        fmt::format("gated_delta_rule: a and b are {} and {}, gates are float32", a.to_string(),
                    b.to_string()));
  }
  const int64_t Nv = b[1].offset;
  if (inputs[3].rank != 1 || !(inputs[3][0] == b[1])) {
    return invalid_argument(
        fmt::format("gated_delta_rule: {} must have one number for each of {} value heads",
                    inputs[3].to_string(), Nv));
  }
  if (inputs[4].rank != 1 || !(inputs[4][0] == a[1])) {
    return invalid_argument(fmt::format("gated_delta_rule: dt_bias {} must be as wide as a {}",
                                        inputs[4].to_string(), a.to_string()));
  }
  if (Nk <= 0 || Dk <= 0 || Dv <= 0 || Nv <= 0 || Nv % Nk != 0 ||
      !(qkv[1] == SymbolicDim::fixed(2 * Nk * Dk + Nv * Dv))) {
    return invalid_argument(
        fmt::format("gated_delta_rule: qkv is {}, not {} key heads of width {} twice and {} value "
                    "heads of width {}",
                    qkv.to_string(), Nk, Dk, Nv, Dv));
  }
  outputs.push_back({qkv.dtype, {qkv[0], SymbolicDim::fixed(Nv * Dv)}});
  return {};
}

int64_t gated_delta_rule_workspace(std::span<const TensorMeta> inputs, const Attrs& attrs,
                                   const Extents& largest, const Context& context) {
  return gated_delta_rule_workspace_bytes(context, {.max_tokens = inputs[0][0].at(largest),
                                                    .num_value_heads = inputs[2][1].offset,
                                                    .key_dim = attrs.integer("key_dim"),
                                                    .value_dim = attrs.integer("value_dim"),
                                                    .channel_decay = !(inputs[1] == inputs[2]),
                                                    .dtype = inputs[0].dtype});
}

Result<GatedDeltaRuleArgs> rule_args(const LaunchArgs& args) {
  HEDDLE_ASSIGN_OR_RETURN(const StateLayer state, state_layer("gated_delta_rule", args));
  HEDDLE_ASSIGN_OR_RETURN(const SnapshotLayer snapshots, snapshot_layer("gated_delta_rule", args));
  return GatedDeltaRuleArgs{
      .qkv = args.inputs[0],
      .a = args.inputs[1],
      .b = args.inputs[2],
      .neg_exp_a_log = args.inputs[3],
      .dt_bias = args.inputs[4],
      .y = args.outputs[0],
      .num_key_heads = args.attrs.integer("num_key_heads"),
      .key_dim = args.attrs.integer("key_dim"),
      .value_dim = args.attrs.integer("value_dim"),
      .beta_scale = static_cast<float>(args.attrs.find("beta_scale").value_or(1)),
      .state = state,
      .snapshots = snapshots,
      .forward = &args.forward,
      .workspace = args.workspace};
}

Status launch_gated_delta_rule(Context& context, const LaunchArgs& args) {
  HEDDLE_ASSIGN_OR_RETURN(const GatedDeltaRuleArgs rule, rule_args(args));
  return gated_delta_rule(context, rule);
}

// Checks vkq [T, Nv * Dv + 2 * Nk * Dk] and the inputs after it. With five inputs these are a [T,
// Nv], decay, dt_bias and skip, with two only decay; the last three are [Nv] each.
Status infer_decayed_linear_attention(std::span<const TensorMeta> inputs, const Attrs& attrs,
                                      std::vector<TensorMeta>& outputs) {
  const bool has_steps = inputs.size() > 2;
  const TensorMeta &vkq = inputs[0], &decay = inputs[has_steps ? 2 : 1];
  const int64_t Nk = attrs.integer("num_key_heads");
  const int64_t Dk = attrs.integer("key_dim");
  const int64_t Dv = attrs.integer("value_dim");
  if (vkq.rank != 2 || decay.rank != 1 || !decay[0].is_fixed() || decay[0].offset <= 0) {
    return invalid_argument(fmt::format(
        "decayed_linear_attention takes vkq [T, Nv*Dv + 2*Nk*Dk] and a decay [Nv], got {} and {}",
        vkq.to_string(), decay.to_string()));
  }
  const int64_t Nv = decay[0].offset;
  if (Nk <= 0 || Dk <= 0 || Dv <= 0 || Nv % Nk != 0 ||
      !(vkq[1] == SymbolicDim::fixed(Nv * Dv + 2 * Nk * Dk))) {
    return invalid_argument(fmt::format(
        "decayed_linear_attention: vkq is {}, not {} value heads of width {} and {} key heads of "
        "width {} twice",
        vkq.to_string(), Nv, Dv, Nk, Dk));
  }
  if (has_steps && !(inputs[1] == TensorMeta(DType::kF32, {vkq[0], decay[0]}))) {
    return invalid_argument(
        fmt::format("decayed_linear_attention: a is {}, not one float32 for each of {} value heads",
                    inputs[1].to_string(), Nv));
  }
  for (size_t i = 3; i < inputs.size(); ++i) {
    if (inputs[i].rank == 1 && inputs[i][0] == decay[0]) continue;
    return invalid_argument(fmt::format("decayed_linear_attention: {} is {}, not [{}]",
                                        i == 3 ? "dt_bias" : "skip", inputs[i].to_string(), Nv));
  }
  outputs.push_back({vkq.dtype, {vkq[0], SymbolicDim::fixed(Nv * Dv)}});
  return {};
}

int64_t decayed_linear_attention_workspace(std::span<const TensorMeta> inputs, const Attrs& attrs,
                                           const Extents& largest, const Context& context) {
  return decayed_linear_attention_workspace_bytes(context,
                                                  {.max_tokens = inputs[0][0].at(largest),
                                                   .key_dim = attrs.integer("key_dim"),
                                                   .value_dim = attrs.integer("value_dim")});
}

Status launch_decayed_linear_attention(Context& context, const LaunchArgs& args) {
  constexpr const char* kName = "decayed_linear_attention";
  HEDDLE_ASSIGN_OR_RETURN(const StateLayer state, state_layer(kName, args));
  HEDDLE_ASSIGN_OR_RETURN(const SnapshotLayer snapshots, snapshot_layer(kName, args));
  DecayedLinearAttentionArgs decayed{.vkq = args.inputs[0],
                                     .decay = args.inputs[1],
                                     .y = args.outputs[0],
                                     .num_key_heads = args.attrs.integer("num_key_heads"),
                                     .key_dim = args.attrs.integer("key_dim"),
                                     .value_dim = args.attrs.integer("value_dim"),
                                     .state = state,
                                     .snapshots = snapshots,
                                     .forward = &args.forward,
                                     .workspace = args.workspace};
  if (args.inputs.size() > 2) {
    decayed.a = args.inputs[1];
    decayed.decay = args.inputs[2];
    decayed.dt_bias = args.inputs[3];
    decayed.skip = args.inputs[4];
    decayed.dt_low = static_cast<float>(args.attrs.real("dt_low"));
    decayed.dt_high = static_cast<float>(args.attrs.real("dt_high"));
  }
  return decayed_linear_attention(context, decayed);
}

Status infer_selective_scan(std::span<const TensorMeta> inputs, const Attrs&,
                            std::vector<TensorMeta>& outputs) {
  const TensorMeta &x = inputs[0], &dt = inputs[1], &b = inputs[2], &decay = inputs[5];
  if (x.rank != 2 || b.rank != 2 || !x[1].is_fixed() || !b[1].is_fixed() || !(b[0] == x[0]) ||
      b.dtype != x.dtype || !(dt == TensorMeta(DType::kF32, {x[0], x[1]})) || !(inputs[3] == b) ||
      !(inputs[4] == x)) {
    return invalid_argument(fmt::format(
        "selective_scan takes x [T, C], dt [T, C] in float32, b and c [T, N] and z [T, C], got {}, "
        "{}, {}, {} and {}",
        x.to_string(), dt.to_string(), b.to_string(), inputs[3].to_string(),
        inputs[4].to_string()));
  }
  if (b[1].offset < 1 || b[1].offset > kMaxScanStates) {
    return invalid_argument(fmt::format("selective_scan: b is {}, N must lie between 1 and {}",
                                        b.to_string(), kMaxScanStates));
  }
  const TensorMeta per_channel(DType::kF32, {x[1]});
  if (!(decay == TensorMeta(DType::kF32, {x[1], b[1]})) || !(inputs[6] == per_channel) ||
      !(inputs[7] == per_channel)) {
    return invalid_argument(
        fmt::format("selective_scan: the decay is {}, dt_bias {} and skip {} beside x {} and b {}",
                    decay.to_string(), inputs[6].to_string(), inputs[7].to_string(), x.to_string(),
                    b.to_string()));
  }
  outputs.push_back(x);
  return {};
}

Status launch_selective_scan(Context& context, const LaunchArgs& args) {
  HEDDLE_ASSIGN_OR_RETURN(const StateLayer state, state_layer("selective_scan", args));
  HEDDLE_ASSIGN_OR_RETURN(const SnapshotLayer snapshots, snapshot_layer("selective_scan", args));
  return selective_scan(context, {.x = args.inputs[0],
                                  .dt = args.inputs[1],
                                  .b = args.inputs[2],
                                  .c = args.inputs[3],
                                  .z = args.inputs[4],
                                  .neg_exp_a_log = args.inputs[5],
                                  .dt_bias = args.inputs[6],
                                  .skip = args.inputs[7],
                                  .y = args.outputs[0],
                                  .state = state,
                                  .snapshots = snapshots,
                                  .forward = &args.forward});
}

Status infer_gated_rms_norm(std::span<const TensorMeta> inputs, const Attrs& attrs,
                            std::vector<TensorMeta>& outputs) {
  const TensorMeta &x = inputs[0], &z = inputs[1], &weight = inputs[2];
  if (x.rank != 2 || !(x == z) || weight.rank != 1 || !x[1].is_fixed()) {
    return invalid_argument(
        fmt::format("gated_rms_norm takes [T, N*D], [T, N*D] and [D] or [N*D], got {}, {} and {}",
                    x.to_string(), z.to_string(), weight.to_string()));
  }
  if (!weight[0].is_fixed() || weight[0].offset <= 0 || x[1].offset % weight[0].offset != 0) {
    return invalid_argument(
        fmt::format("gated_rms_norm: x is {}, not a multiple of the weight's {}", x.to_string(),
                    weight.to_string()));
  }
  const auto D = static_cast<int64_t>(
      attrs.find("group_width").value_or(static_cast<double>(weight[0].offset)));
  if (D <= 0 || x[1].offset % D != 0 || (weight[0].offset != D && !(weight[0] == x[1]))) {
    return invalid_argument(
        fmt::format("gated_rms_norm: x is {} and the weight {}, in groups of {}", x.to_string(),
                    weight.to_string(), D));
  }
  outputs.push_back(x);
  return {};
}

GatedRmsNormArgs norm_args(const LaunchArgs& args, NormGate gate) {
  return {.x = args.inputs[0],
          .z = args.inputs[1],
          .weight = args.inputs[2],
          .y = args.outputs[0],
          .epsilon = static_cast<float>(args.attrs.real("epsilon")),
          .gate = gate,
          .gate_first = args.attrs.find("gate_first").value_or(0) != 0,
          .group_width = static_cast<int64_t>(args.attrs.find("group_width").value_or(0))};
}

template <NormGate kGate>
Status launch_gated_rms_norm(Context& context, const LaunchArgs& args) {
  return gated_rms_norm(context, norm_args(args, kGate));
}

Result<bool> launch_delta_step(Context& context, std::span<const ChainedOp> chain) {
  HEDDLE_ASSIGN_OR_RETURN(CausalConv1dArgs conv, conv_args(chain[0].args));
  HEDDLE_ASSIGN_OR_RETURN(GatedDeltaRuleArgs rule, rule_args(chain[1].args));
  conv.snapshots = snapshot_or_working(conv.snapshots, conv.state);
  rule.snapshots = snapshot_or_working(rule.snapshots, rule.state);
  const DeltaStepArgs step{
      .conv = conv, .rule = rule, .norm = norm_args(chain[2].args, NormGate::kSilu)};
  auto& cuda = static_cast<CudaContext&>(context);
  if (!delta_step_fits(cuda, step)) return false;
  HEDDLE_RETURN_IF_ERROR(delta_step_cuda(cuda, step));
  return true;
}

}  // namespace

std::span<const OpDef> linear_attention_ops() {
  constexpr uint32_t kState = kReadsContext | kWritesState | kSplit;
  static const OpDef kOps[] = {
      {.name = "causal_conv1d",
       .effects = kState,
       .coverage = WriteCoverage::kRealRows,
       .num_inputs = 2,
       .aliases = {},
       .infer = infer_causal_conv1d,
       .launch = launch_causal_conv1d},
      {.name = "causal_conv1d_bias",
       .effects = kState,
       .coverage = WriteCoverage::kRealRows,
       .num_inputs = 3,
       .aliases = {},
       .infer = infer_causal_conv1d,
       .launch = launch_causal_conv1d},
      {.name = "decayed_linear_attention",
       .effects = kState,
       .coverage = WriteCoverage::kRealRows,
       .num_inputs = 5,
       .aliases = {},
       .infer = infer_decayed_linear_attention,
       .workspace_bytes = decayed_linear_attention_workspace,
       .launch = launch_decayed_linear_attention},
      {.name = "constant_decay_attention",
       .effects = kState,
       .coverage = WriteCoverage::kRealRows,
       .num_inputs = 2,
       .aliases = {},
       .infer = infer_decayed_linear_attention,
       .workspace_bytes = decayed_linear_attention_workspace,
       .launch = launch_decayed_linear_attention},
      {.name = "gated_delta_rule",
       .effects = kState,
       .coverage = WriteCoverage::kRealRows,
       .num_inputs = 5,
       .aliases = {},
       .infer = infer_gated_delta_rule,
       .workspace_bytes = gated_delta_rule_workspace,
       .launch = launch_gated_delta_rule},
      {.name = "selective_scan",
       .effects = kState,
       .coverage = WriteCoverage::kRealRows,
       .num_inputs = 8,
       .aliases = {},
       .infer = infer_selective_scan,
       .launch = launch_selective_scan},
      {.name = "gated_rms_norm",
       .num_inputs = 3,
       .aliases = {},
       .infer = infer_gated_rms_norm,
       .launch = launch_gated_rms_norm<NormGate::kSilu>},
      {.name = "sigmoid_gated_rms_norm",
       .num_inputs = 3,
       .aliases = {},
       .infer = infer_gated_rms_norm,
       .launch = launch_gated_rms_norm<NormGate::kSigmoid>},
  };
  return kOps;
}

std::span<const OpChain> linear_attention_chains() {
  static constexpr std::string_view kStep[] = {"causal_conv1d", "gated_delta_rule",
                                               "gated_rms_norm"};
  static constexpr OpChain::Link kLinks[] = {{.from = 0, .to = 1, .input = 0},
                                             {.from = 1, .to = 2, .input = 0}};
  static constexpr OpChain kChains[] = {
      {.ops = kStep, .links = kLinks, .launch = launch_delta_step}};
  return kChains;
}

}  // namespace heddle::ops
