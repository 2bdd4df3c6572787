// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/clock.h"
#include "device/cpu_device.h"
#include "ops/attention/latent_projection.h"
#include "ops/attention/page_copy.h"
#include "ops/attention/paged_attention.h"
#include "ops/bring_batch.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/gemm/linear.h"
#include "ops/kernel_check_side.h"
#include "ops/layout/layout.h"
#include "ops/linear_attention/state_snapshot.h"
#include "ops/moe/routed_moe.h"
#include "ops/norm/rms_norm.h"
#include "ops/op_chain.h"
#include "ops/registry.h"
#include "ops/rope/rope.h"
#include "ops/sampling/row_scratch.h"
#include "ops/sampling/sample_rows.h"

namespace heddle::ops {

namespace {

using Side = KernelCheckSide;
using Step = CheckStep;

constexpr int64_t kRows = 5;

Status norm_case(Side& side) {
  const MutableTensorView x = side.random({kRows, 96});
  const MutableTensorView weight = side.floats({96});
  return rms_norm(side.context(), {.x = x, .weight = weight, .y = side.output(x.shape)});
}

Status elementwise_case(Side& side) {
  const MutableTensorView a = side.random({kRows, 100});
  const MutableTensorView b = side.random({kRows, 100});
  for (const ElementwiseKind kind :
       {ElementwiseKind::kAdd, ElementwiseKind::kMul, ElementwiseKind::kScale,
        ElementwiseKind::kSigmoid, ElementwiseKind::kSigmoidMul, ElementwiseKind::kSiluMul,
        ElementwiseKind::kBoundedSiluMul, ElementwiseKind::kGeluMul, ElementwiseKind::kErfGeluMul,
        ElementwiseKind::kGelu, ElementwiseKind::kErfGelu, ElementwiseKind::kSquaredRelu,
        ElementwiseKind::kSoftcap}) {
    const TensorView second = is_unary(kind) ? TensorView() : TensorView(b);
    HEDDLE_RETURN_IF_ERROR(elementwise(
        side.context(),
        {.kind = kind, .a = a, .b = second, .y = side.output(a.shape), .factor = 0.22f}));
  }
  return {};
}

Status layout_case(Side& side) {
  const MutableTensorView table = side.random({11, 40});
  const TensorView ids = side.integers({3, 0, 10, 7, 3});
  const MutableTensorView rows = side.output({kRows, 40});
  HEDDLE_RETURN_IF_ERROR(embedding(side.context(), {.ids = ids, .table = table, .y = rows}));
  return copy_rows(side.context(), rows, {}, side.output(rows.shape));
}

Status rope_case(Side& side) {
  const MutableTensorView x = side.random({kRows, 2 * 32});
  return rope(side.context(), {.x = x,
                               .norm_weight = side.floats({32}),
                               .positions = side.integers({0, 1, 2, 30, 31}),
                               .inverse_frequencies = side.floats({8}),
                               .y = side.output(x.shape),
                               .head_dim = 32});
}

// Checks a linear product, with a quantised weight if `scheme` is set.
Status linear_case(Side& side, int64_t T, int64_t K, std::optional<quant::Scheme> scheme = {}) {
  const int64_t N = 40;
  const MutableTensorView x = side.random({T, K});
  const TensorView weight = scheme ? side.packed({N, K}, *scheme) : TensorView(side.random({N, K}));
  const int64_t bytes = linear_workspace_bytes(side.context(), T, K, N, weight.dtype);
  return linear(side.context(), {.x = x,
                                 .weight = weight,
                                 .bias = side.floats({N}),
                                 .y = side.output({T, N}),
                                 .workspace = side.workspace(bytes)});
}

// Few rows, for which kernels read the codes, and more rows, for which the weight is dequantised;
// with integer and with float codes.
Status packed_linear_case(Side& side) {
  for (const quant::Scheme scheme : {quant::Scheme::kInt4, quant::Scheme::kInt8,
                                     quant::Scheme::kFp8Block, quant::Scheme::kMxfp4}) {
    for (const int64_t T : {1, 5, 20}) {
      HEDDLE_RETURN_IF_ERROR(linear_case(side, T, 160, scheme));
    }
  }
  return {};
}

struct ExpertSizes {
  int64_t T, H, I, E, A;
  RouterScoring scoring = {};
  std::optional<quant::Scheme> scheme = {};  // scheme of quantised experts; nullopt: dense
};

Status moe_case(Side& side, const ExpertSizes& sizes) {
  const auto& [T, H, I, E, A, scoring, scheme] = sizes;
  const MutableTensorView x = side.random({T, H});
  const auto weight = [&](const Shape& of) {
    return scheme ? side.packed(of, *scheme) : TensorView(side.random(of));
  };
  const RoutedMoeShape shape{.H = H,
                             .I = I,
                             .E = E,
                             .A = A,
                             .weight = scheme ? DType::kPacked : side.dtype(),
                             .x = side.dtype()};
  return routed_moe(
      side.context(),
      {.x = x,
       .router_logits = side.floats({T, E}, -4, 4),
       .w13 = weight({E, 2 * I, H}),
       .w2 = weight({E, H, I}),
       .y = side.output(x.shape),
       .experts_per_token = A,
       .scoring = scoring,
       .workspace = side.workspace(routed_moe_workspace_bytes(side.context(), T, shape))});
}

// A node of a program: an op and views of its tensors.
struct Node {
  const char* op;
  std::vector<TensorView> inputs;
  std::vector<MutableTensorView> outputs;
  Attrs attrs = {};
};

enum class Launch { kEach, kTogether };  // kTogether: in one launch, if the device can

// Runs the nodes. Outputs that only link nodes are not registered as results: when nodes are
// launched together, they need not write them.
Status run_nodes(Side& side, const ForwardContext& forward, Launch launch,
                 const std::vector<Node>& nodes) {
  std::vector<ChainedOp> ops;
  for (const Node& node : nodes) {
    const OpDef* op = builtin_ops().find(node.op);
    std::span<std::byte> workspace;
    if (op->workspace_bytes != nullptr) {
      std::vector<TensorMeta> inputs;
      for (const TensorView& input : node.inputs) inputs.push_back(TensorMeta::of(input));
      workspace = side.workspace(op->workspace_bytes(inputs, node.attrs, {}, side.context()));
    }
    ops.push_back({.op = op, .args = {node.inputs, node.outputs, node.attrs, forward, workspace}});
  }
  for (const OpChain& chain : op_chains(side.context())) {
    if (launch == Launch::kEach || !std::ranges::equal(chain.ops, nodes, {}, {}, &Node::op)) {
      continue;
    }
    HEDDLE_ASSIGN_OR_RETURN(const bool launched, chain.launch(side.context(), ops));
    if (launched) return {};
  }
  return launch_each(side.context(), ops);
}

// A gated product, its sum with the residual, the norm of the sum and a product of that.
Status products_case(Side& side, int32_t T) {
  constexpr int64_t K = 256, H = 256, N = 40;
  const MutableTensorView gate_up = side.random({T, 2 * K});
  const MutableTensorView weight = side.random({H, K}), last_weight = side.random({N, H});
  const MutableTensorView residual = side.changed(side.random({T, H}));
  const MutableTensorView x = side.room({T, K}), sum = side.room({T, H});
  const MutableTensorView normed = side.output({T, H}), y = side.output({T, N});
  return run_nodes(
      side, side.step({.rows = T}), Launch::kTogether,
      {{"silu_mul", {gate_up}, {x}},
       {"linear", {x, weight}, {sum}},
       {"add_rms_norm", {residual, sum, side.floats({H})}, {residual, normed}, {{"epsilon", 1e-6}}},
       {"linear", {normed, last_weight}, {y}}});
}

// One token through its routed experts and the shared expert; then residual, norm and product.
Status shared_expert_case(Side& side) {
  constexpr int32_t T = 1;
  constexpr int64_t H = 256, I = 256, E = 3, A = 2, N = 40;
  const MutableTensorView x = side.random({T, H}), gate_up = side.random({T, 2 * I});
  const MutableTensorView logits = side.floats({T, E}, -4, 4), gate = side.floats({T, 1});
  const MutableTensorView w13 = side.random({E, 2 * I, H}), w2 = side.random({E, H, I});
  const MutableTensorView down = side.random({H, I}), last_weight = side.random({N, H});
  const MutableTensorView residual = side.changed(side.random({T, H}));
  const MutableTensorView routed = side.room({T, H}), hidden = side.room({T, I});
  const MutableTensorView shared = side.room({T, H}), gated = side.room({T, H});
  const MutableTensorView sum = side.room({T, H});
  const MutableTensorView normed = side.output({T, H}), y = side.output({T, N});
  return run_nodes(
      side, side.step({.rows = T}), Launch::kTogether,
      {{"routed_moe", {x, logits, w13, w2}, {routed}, {{"top_k", A}, {"normalize", 1}}},
       {"silu_mul", {gate_up}, {hidden}},
       {"linear", {hidden, down}, {shared}},
       {"sigmoid_mul", {shared, gate}, {gated}},
       {"add", {routed, gated}, {sum}},
       {"add_rms_norm", {residual, sum, side.floats({H})}, {residual, normed}, {{"epsilon", 1e-6}}},
       {"linear", {normed, last_weight}, {y}}});
}

struct DeltaSizes {
  int64_t Nk = 2, Nv = 2, Dk = 32, Dv = 48;
  int64_t W = 4;  // width of the convolution
  DType snapshots = DType::kF32;
  double silu = 1;
  double beta_scale = 1;
};

Status delta_case(Side& side, const DeltaSizes& sizes, const Step& step,
                  Launch launch = Launch::kEach) {
  const auto& [Nk, Nv, Dk, Dv, W, format, silu, beta_scale] = sizes;
  const int64_t T = step.rows, C = 2 * Nk * Dk + Nv * Dv;
  const int64_t slots = 2 + (step.has_tree ? Step::kTreeNodes : 0);
  const StateLayer state{.conv = side.changed(side.floats({slots, W - 1, C})),
                         .recurrent = side.changed(side.floats({slots, Nv, Dv, Dk}))};
  const SnapshotLayer snapshots{.conv = side.changed(side.room({2, W - 1, C}, DType::kF32)),
                                .recurrent = side.changed(side.room({2, Nv, Dv, Dk}, format)),
                                .scales = side.changed(side.room({2, Nv, Dv}, DType::kF32))};
  ForwardContext& forward = side.step(step);
  forward.state_layers = {&state, 1};
  forward.snapshot_layers = {&snapshots, 1};
  const MutableTensorView qkv = side.room({T, C}), o = side.room({T, Nv * Dv});
  return run_nodes(side, forward, launch,
                   {{"causal_conv1d",
                     {side.random({T, C}), side.floats({C, W})},
                     {qkv},
                     {{"layer", 0}, {"silu", silu}}},
                    {"gated_delta_rule",
                     {qkv, side.floats({T, Nv}), side.floats({T, Nv}), side.floats({Nv}, -0.1f, 0),
                      side.floats({Nv})},
                     {o},
                     {{"num_key_heads", static_cast<double>(Nk)},
                      {"key_dim", static_cast<double>(Dk)},
                      {"value_dim", static_cast<double>(Dv)},
                      {"layer", 0},
                      {"beta_scale", beta_scale}}},
                    {"gated_rms_norm",
                     {o, side.random(o.shape), side.floats({Dv})},
                     {side.output(o.shape)},
                     {{"epsilon", 1e-6}}}});
}

// A layer of Mamba-2: a convolution with a bias, a recurrence and a norm after the gate; then the
// same rows with constant decays.
Status decayed_case(Side& side, const DeltaSizes& sizes, const Step& step) {
  const auto& [Nk, Nv, Dk, Dv, W, format, silu, beta_scale] = sizes;
  const int64_t T = step.rows, C = 2 * Nk * Dk + Nv * Dv;
  const int64_t slots = 2 + (step.has_tree ? Step::kTreeNodes : 0);
  const StateLayer state{.conv = side.changed(side.floats({slots, W - 1, C})),
                         .recurrent = side.changed(side.floats({slots, Nv, Dv, Dk}))};
  const SnapshotLayer snapshots{.conv = side.changed(side.room({2, W - 1, C}, DType::kF32)),
                                .recurrent = side.changed(side.room({2, Nv, Dv, Dk}, format)),
                                .scales = side.changed(side.room({2, Nv, Dv}, DType::kF32))};
  ForwardContext& forward = side.step(step);
  forward.state_layers = {&state, 1};
  forward.snapshot_layers = {&snapshots, 1};
  const Attrs heads{{"num_key_heads", static_cast<double>(Nk)},
                    {"key_dim", static_cast<double>(Dk)},
                    {"value_dim", static_cast<double>(Dv)},
                    {"layer", 0}};
  Attrs steps = heads;
  steps.set("dt_low", 0.1);
  steps.set("dt_high", 2);
  const MutableTensorView vkq = side.room({T, C}), o = side.room({T, Nv * Dv});
  const MutableTensorView decay = side.floats({Nv}, -0.1f, 0);
  return run_nodes(
      side, forward, Launch::kEach,
      {{"causal_conv1d_bias",
        {side.random({T, C}), side.floats({C, W}), side.floats({C})},
        {vkq},
        {{"layer", 0}}},
       {"decayed_linear_attention",
        {vkq, side.floats({T, Nv}), decay, side.floats({Nv}), side.floats({Nv})},
        {o},
        steps},
       {"gated_rms_norm",
        {o, side.random(o.shape), side.floats({Nv * Dv})},
        {side.output(o.shape)},
        {{"epsilon", 1e-6}, {"gate_first", 1}, {"group_width", static_cast<double>(Dv)}}},
       {"constant_decay_attention", {vkq, decay}, {side.output(o.shape)}, heads}});
}

Status scan_case(Side& side, int64_t N, const Step& step) {
  constexpr int64_t C = 200;
  const int64_t T = step.rows;
  const int64_t slots = 2 + (step.has_tree ? Step::kTreeNodes : 0);
  const StateLayer state{.conv = {}, .recurrent = side.changed(side.floats({slots, 1, C, N}))};
  const SnapshotLayer snapshots{.conv = {},
                                .recurrent = side.changed(side.room({2, 1, C, N}, DType::kI8)),
                                .scales = side.changed(side.room({2, 1, C}, DType::kF32))};
  ForwardContext& forward = side.step(step);
  forward.state_layers = {&state, 1};
  forward.snapshot_layers = {&snapshots, 1};
  return run_nodes(
      side, forward, Launch::kEach,
      {{"selective_scan",
        {side.random({T, C}), side.floats({T, C}), side.random({T, N}), side.random({T, N}),
         side.random({T, C}), side.floats({C, N}, -2, 0), side.floats({C}), side.floats({C})},
        {side.output({T, C})},
        {{"layer", 0}}}});
}

Status state_case(Side& side) {
  const MutableTensorView window = side.changed(side.floats({3, 3, 8}));
  const MutableTensorView matrices = side.changed(side.floats({3, 2, 4, 4}));
  const auto move = [&side](StateMove kind, const MirroredSpan<StatePartView>& parts,
                            const std::vector<IdCopy>& slots) {
    return move_states(side.context(), {.move = kind, .parts = parts, .slots = side.list(slots)});
  };
  for (const DType format : {DType::kF32, DType::kBf16, DType::kI8}) {
    const std::vector<StatePartView> saved = {
        state_part(window, side.changed(side.room({3, 3, 8}, DType::kF32))),
        state_part(matrices, side.changed(side.room({3, 2, 4, 4}, format)),
                   side.changed(side.room({3, 2, 4}, DType::kF32)))};
    const MirroredSpan<StatePartView> parts = side.list(saved);
    HEDDLE_RETURN_IF_ERROR(move(StateMove::kSave, parts, {{.from = 1, .to = 2}}));
    HEDDLE_RETURN_IF_ERROR(move(StateMove::kRestore, parts, {{.from = 2, .to = 0}}));
  }
  const std::vector<StatePartView> alone = {state_part(window), state_part(matrices)};
  const MirroredSpan<StatePartView> parts = side.list(alone);
  HEDDLE_RETURN_IF_ERROR(move(StateMove::kCopy, parts, {{.from = 1, .to = 2}}));
  return move(StateMove::kZero, parts, {{.to = 1}});
}

struct HeadSizes {
  int64_t Nq = 2, Nkv = 1, D = 32;
};

Status attention_case(Side& side, const HeadSizes& sizes, const Step& step,
                      Launch launch = Launch::kEach) {
  const auto& [Nq, Nkv, D] = sizes;
  const int64_t T = step.rows;
  ForwardContext& forward = side.step(step);
  const Shape pages{forward.page_table_width + 2, Side::kPageSize, Nkv, D};
  const std::vector<KvLayer> layers = {
      {.k = side.changed(side.random(pages)), .v = side.changed(side.random(pages))}};
  forward.kv_layers = layers;
  std::vector<int32_t> places(static_cast<size_t>(T));
  std::iota(places.begin(), places.end(), step.context);
  const TensorView positions = side.integers(places), frequencies = side.floats({D / 4});
  const MutableTensorView q = side.room({T, Nq * D}), k = side.room({T, Nkv * D});
  const Attrs rotation{{"head_dim", static_cast<double>(D)}, {"factor", 1}, {"epsilon", 1e-6}};
  HEDDLE_RETURN_IF_ERROR(
      run_nodes(side, forward, launch,
                {{"qk_norm_rope",
                  {side.random(q.shape), side.floats({D}), positions, frequencies},
                  {q},
                  rotation},
                 {"qk_norm_rope",
                  {side.random(k.shape), side.floats({D}), positions, frequencies},
                  {k},
                  rotation},
                 {"paged_attention",
                  {q, k, side.random(k.shape)},
                  {side.output(q.shape)},
                  {{"num_kv_heads", static_cast<double>(Nkv)},
                   {"head_dim", static_cast<double>(D)},
                   {"scale", 0.2},
                   {"window", 0},
                   {"layer", 0}}}}));
  const auto spare = static_cast<int32_t>(forward.page_table_width) + 1;
  const std::vector<IdCopy> copies = {{.from = 1, .to = spare}};
  return copy_pages(side.context(), {.layers = side.list(layers), .pages = side.list(copies)});
}

Status latent_case(Side& side) {
  constexpr int64_t kHeads = 2, kKeyDim = 16, kValueDim = 24, kLatent = 40;
  const MutableTensorView weight = side.random({kHeads * (kKeyDim + kValueDim), kLatent});
  HEDDLE_RETURN_IF_ERROR(absorb_query(side.context(), {.x = side.random({kRows, kHeads * kKeyDim}),
                                                       .weight = weight,
                                                       .y = side.output({kRows, kHeads * kLatent}),
                                                       .num_heads = kHeads,
                                                       .key_dim = kKeyDim}));
  return expand_values(side.context(), {.x = side.random({kRows, kHeads * kLatent}),
                                        .weight = weight,
                                        .y = side.output({kRows, kHeads * kValueDim}),
                                        .num_heads = kHeads,
                                        .key_dim = kKeyDim});
}

// Feeds drawn tokens to the next step. Its first row gets the token of slot 0; its second row ends,
// because no token was drawn for its slot.
Status feed_case(Side& side, const MutableTensorView& drawn, int32_t empty_slot) {
  const auto pair = [&side](int32_t first, int32_t second) {
    return side.changed(side.integers({first, second})).as<int32_t>();
  };
  if (side.on_cpu()) {  // the CPU does not have this op: writes the expected numbers
    const int32_t token = *drawn.as<int32_t>();
    const std::vector<std::pair<int32_t, int32_t>> fed = {{token, 0}, {0, -1}, {1, -1}, {0, 1}};
    for (const auto& [first, second] : fed) pair(first, second);
    return {};
  }
  const std::vector<FedRow> fed = {{.row = 0, .sequence = 0, .logit_row = 0, .from = 0},
                                   {.row = 1, .sequence = 1, .logit_row = 1, .from = empty_slot}};
  return bring_batch_cuda(
      static_cast<CudaContext&>(side.context()),
      {.feed = {.fed = side.array(fed),
                .num_fed = std::ssize(fed),
                .drawn = drawn.as<int32_t>(),
                .rows = {.ids = pair(7, 7), .row_sequences = pair(0, 1), .state_slots = pair(1, 2)},
                .ended = pair(7, 7)}});
}

Status sampling_case(Side& side, DrawKind kind, int64_t V) {
  constexpr double kNoMinP = -std::numeric_limits<double>::infinity();
  const SamplingSlot best{.min_p_reach = kNoMinP, .greedy = 1};
  SamplingSlot few{.min_p_reach = kNoMinP, .top_p = 0.8f, .top_k = 20};
  SamplingSlot any{.min_p_reach = kNoMinP, .top_p = 0.9f};
  if (kind > DrawKind::kAny) any = few;
  if (kind > DrawKind::kFew) any = few = best;
  const std::vector<SamplingSlot> slots = {best, few, any};
  std::vector<SamplingRow> rows;
  for (int32_t i = 0; i < std::ssize(slots); ++i) rows.push_back({.slot = i, .publish = 1});
  const int64_t R = std::ssize(rows);
  const MutableTensorView drawn = side.changed(side.integers({-1, -1, -1, -1}));
  HEDDLE_RETURN_IF_ERROR(sample_rows(
      side.context(), {.logits = side.floats({R, V}, -8, 8),
                       .rows = side.array(rows),
                       .slots = side.array(slots),
                       .kind = kind,
                       .drawn = drawn.as<int32_t>(),
                       .sampled = reinterpret_cast<SampledRow*>(
                           side.workspace(R * static_cast<int64_t>(sizeof(SampledRow))).data()),
                       .workspace = side.workspace(sample_rows_workspace_bytes(R, V))}));
  return feed_case(side, drawn, static_cast<int32_t>(R));
}

struct Case {
  const char* name;
  DTypeSet dtypes;
  Status (*run)(Side& side);
};

constexpr DTypeSet kFp32 = DType::kF32;
constexpr DTypeSet kBf16 = DType::kBf16;
constexpr DTypeSet kBoth = kFp32 | kBf16;

// Sizes that select the bf16 kernels on tensor cores.
constexpr DeltaSizes kWide{.Nk = 1, .Dk = 128, .Dv = 128, .snapshots = DType::kBf16};
constexpr DeltaSizes kWideInt8{.Nk = 1, .Dk = 128, .Dv = 128, .snapshots = DType::kI8};
// More heads than a quarter of a Hopper GPU's multiprocessors, so that it computes them in two
// kernels.
constexpr DeltaSizes kManyHeads{
    .Nk = 17, .Nv = 34, .Dk = 128, .Dv = 128, .snapshots = DType::kBf16};
constexpr HeadSizes kWideHeads{.Nq = 8, .D = 64};
constexpr RouterScoring kGroups{
    .score = RouterScore::kSigmoid, .num_groups = 4, .groups_kept = 2, .group_terms = 2};

// The cases. A case for bf16 only has the shape of one kernel for serving (the *_fit() in the
// kernel's header says which shapes it supports); the shapes of the other cases are computed by
// plain kernels.
constexpr Case kCases[] = {
    {"rms_norm", kBoth, norm_case},
    {"elementwise", kBoth, elementwise_case},
    {"embedding", kBoth, layout_case},
    {"rope", kBoth, rope_case},
    {"latent_projection", kBoth, latent_case},
    {"copy_states", kFp32, state_case},
    {"sample_rows", kFp32, [](Side& side) { return sampling_case(side, DrawKind::kAny, 700); }},
    {"sample_rows, few tokens", kFp32,
     [](Side& side) { return sampling_case(side, DrawKind::kFew, kTileTokens * kFewTokens); }},
    {"sample_rows, the best", kFp32,
     [](Side& side) { return sampling_case(side, DrawKind::kBest, 700); }},

    {"linear, 1 row", kBoth, [](Side& side) { return linear_case(side, 1, 72); }},
    {"linear, 5 rows", kBoth, [](Side& side) { return linear_case(side, 5, 72); }},
    {"linear, 104 rows", kBoth, [](Side& side) { return linear_case(side, 104, 256); }},
    {"skinny_product, 1 row", kBf16, [](Side& side) { return linear_case(side, 1, 256); }},
    {"skinny_product, 2 rows", kBf16, [](Side& side) { return linear_case(side, 2, 256); }},
    {"skinny_product, 5 rows", kBf16, [](Side& side) { return linear_case(side, 5, 256); }},
    {"skinny_product, 16 rows", kBf16, [](Side& side) { return linear_case(side, 16, 256); }},
    {"skinny_product, 1 row of 160", kBf16, [](Side& side) { return linear_case(side, 1, 160); }},
    {"skinny_product, 5 rows of 160", kBf16, [](Side& side) { return linear_case(side, 5, 160); }},
    {"products together, 1 row", kBf16, [](Side& side) { return products_case(side, 1); }},
    {"products together, 5 rows", kBf16, [](Side& side) { return products_case(side, 5); }},

    {"linear with quantised weights", kBoth, packed_linear_case},

    {"routed_moe, 70 tokens", kBoth,
     [](Side& side) { return moe_case(side, {.T = 70, .H = 64, .I = 32, .E = 6, .A = 2}); }},
    {"routed_moe by groups", kBoth,
     [](Side& side) {
       return moe_case(side, {.T = 5, .H = 64, .I = 32, .E = 8, .A = 2, .scoring = kGroups});
     }},
    {"routed_moe with fp8 experts", kBoth,
     [](Side& side) {
       return moe_case(
           side, {.T = 7, .H = 64, .I = 32, .E = 6, .A = 2, .scheme = quant::Scheme::kFp8Block});
     }},
    {"routed_moe with mxfp4 experts", kBoth,
     [](Side& side) {
       return moe_case(side,
                       {.T = 7, .H = 64, .I = 32, .E = 6, .A = 2, .scheme = quant::Scheme::kMxfp4});
     }},
    {"routed_moe with fp8 experts, made dense", kBf16,
     [](Side& side) {
       return moe_case(
           side, {.T = 40, .H = 256, .I = 128, .E = 2, .A = 1, .scheme = quant::Scheme::kFp8Block});
     }},
    {"few_experts, 2 tokens", kBf16,
     [](Side& side) { return moe_case(side, {.T = 2, .H = 256, .I = 256, .E = 6, .A = 1}); }},
    {"few_experts, 2 tokens of 72", kBf16,
     [](Side& side) { return moe_case(side, {.T = 2, .H = 72, .I = 328, .E = 6, .A = 1}); }},
    {"routed_moe, tiles of 64", kBf16,
     [](Side& side) { return moe_case(side, {.T = 32, .H = 256, .I = 128, .E = 2, .A = 2}); }},
    {"routed_moe, tiles of 192", kBf16,
     [](Side& side) { return moe_case(side, {.T = 100, .H = 256, .I = 128, .E = 2, .A = 1}); }},
    {"experts together", kBf16, shared_expert_case},

    {"gated_delta_rule, 1 row", kBoth,
     [](Side& side) { return delta_case(side, {}, {.rows = 1, .context = 3}); }},
    {"gated_delta_rule, 20 rows", kBoth,
     [](Side& side) {
       return delta_case(side, {}, {.rows = 20, .context = 3, .snapshot_tokens = 16});
     }},
    {"gated_delta_rule, a tree", kBoth,
     [](Side& side) {
       return delta_case(side, {.W = 3, .silu = 0, .beta_scale = 2},
                         {.context = 3, .has_tree = true});
     }},
    {"gated_delta_rule of few rows", kBf16,
     [](Side& side) {
       return delta_case(side, kWide, {.rows = 2, .context = 3, .snapshot_tokens = 1});
     }},
    {"gated_delta_rule in chunks", kBf16,
     [](Side& side) {
       return delta_case(side, kWide, {.rows = 70, .context = 3, .snapshot_tokens = 64});
     }},
    {"gated_delta_rule in chunks, 34 heads", kBf16,
     [](Side& side) {
       return delta_case(side, kManyHeads, {.rows = 70, .context = 3, .snapshot_tokens = 64});
     }},
    {"selective_scan, 20 rows", kBoth,
     [](Side& side) {
       return scan_case(side, 16, {.rows = 20, .context = 3, .snapshot_tokens = 16});
     }},
    {"selective_scan, a tree", kBoth,
     [](Side& side) { return scan_case(side, 40, {.context = 3, .has_tree = true}); }},
    {"delta_step", kBf16,
     [](Side& side) {
       return delta_case(side, kWideInt8, {.rows = 1, .context = 3, .snapshot_tokens = 1},
                         Launch::kTogether);
     }},

    {"decayed_linear_attention, 1 row", kBoth,
     [](Side& side) { return decayed_case(side, {}, {.rows = 1, .context = 3}); }},
    {"decayed_linear_attention, 20 rows", kBoth,
     [](Side& side) {
       return decayed_case(side, {.Nk = 1, .Nv = 3, .Dk = 40, .Dv = 24, .snapshots = DType::kI8},
                           {.rows = 20, .context = 3, .snapshot_tokens = 16});
     }},
    {"decayed_linear_attention, a tree", kBoth,
     [](Side& side) { return decayed_case(side, {.W = 3}, {.context = 3, .has_tree = true}); }},

    {"paged_attention, 5 rows", kBoth, [](Side& side) { return attention_case(side, {}, {}); }},
    {"paged_attention in segments", kBoth,
     [](Side& side) { return attention_case(side, {}, {.rows = 1, .context = 1030}); }},
    {"paged_attention, a tree", kBoth,
     [](Side& side) { return attention_case(side, {}, {.context = 14, .has_tree = true}); }},
    {"paged_attention in splits", kBf16,
     [](Side& side) {
       return attention_case(side, kWideHeads, {.rows = 1, .context = 200}, Launch::kTogether);
     }},
    {"paged_attention of a prompt", kBf16,
     [](Side& side) { return attention_case(side, kWideHeads, {.rows = 40}, Launch::kTogether); }},
};

std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> floats(static_cast<size_t>(tensor.num_elements()));
  const auto convert = [&floats](const auto& numbers, const auto& to_number) {
    std::ranges::transform(numbers, floats.begin(), to_number);
  };
  const auto cast = [](auto number) { return static_cast<float>(number); };
  switch (tensor.dtype()) {
    case DType::kBf16:
      convert(tensor.span<Bf16>(), [](Bf16 number) { return to_float(number); });
      break;
    case DType::kI8:
      convert(tensor.span<int8_t>(), cast);
      break;
    case DType::kI32:
      convert(tensor.span<int32_t>(), cast);
      break;
    default:
      convert(tensor.span<float>(), cast);
  }
  return floats;
}

// The largest difference between the tensors, relative to their largest number.
float error_of(const Tensor& got, const Tensor& want) {
  const std::vector<float> values = floats_of(got), expected = floats_of(want);
  float largest = 0;
  float difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const float error = std::fabs(values[i] - expected[i]);
    if (!(error < INFINITY)) return INFINITY;
    largest = std::max(largest, std::fabs(expected[i]));
    difference = std::max(difference, error);
  }
  return largest > 0 ? difference / largest : difference;
}

// Largest relative difference allowed: fp32 sums of some hundred terms, or a few roundings to bf16
// (2^-9) in a row.
float tolerance_of(DType round, DType result) {
  if (result == DType::kI32) return 0;  // tokens must be equal
  return round == DType::kBf16 ? 2e-2f : 1e-4f;
}

Result<std::vector<Tensor>> run_case(const Case& one, DType round, Side& side) {
  side.begin(round);
  HEDDLE_RETURN_IF_ERROR(one.run(side));
  return side.results();
}

}  // namespace

Result<KernelCheck> check_kernels(device::Device& device, device::Stream& stream,
                                  Context& context) {
  const SteadyClock clock;
  const double start = clock.now_seconds();
  device::CpuDevice cpu(1);
  HEDDLE_ASSIGN_OR_RETURN(const auto cpu_stream, cpu.create_stream());
  CpuContext cpu_context(cpu.pool(), context.exact);
  Side reference(cpu, *cpu_stream, cpu_context);
  Side tested(device, stream, context);
  KernelCheck check;
  for (const DType round : {DType::kF32, DType::kBf16}) {
    for (const Case& one : kCases) {
      if (!one.dtypes.contains(round)) continue;
      const std::string name = fmt::format("{} in {}", one.name, to_string(round));
      const Result<std::vector<Tensor>> want = run_case(one, round, reference);
      if (!want.ok()) return want.status().with_context(name);
      const Result<std::vector<Tensor>> got = run_case(one, round, tested);
      if (!got.ok()) return got.status().with_context(name);
      for (size_t i = 0; i < want->size(); ++i) {
        const float error = error_of((*got)[i], (*want)[i]);
        if (error <= tolerance_of(round, (*want)[i].dtype())) continue;
        return internal_error(
            fmt::format("{} on {} differs from the CPU by {:.1e}", name, device.name(), error));
      }
      ++check.num_cases;
    }
  }
  check.seconds = clock.now_seconds() - start;
  return check;
}

}  // namespace heddle::ops
