// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "ops/attention/latent_projection.h"
#include "ops/attention/paged_attention.h"
#include "ops/attention/rotate_append.h"
#include "ops/attention/segment_attention.h"
#include "ops/op_chain.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

// Checks the queries q [T, Nq*D] of a layer with pages; `value_dim` is the width of a head's
// values.
Status infer_queries(const TensorMeta& q, const Attrs& attrs, int64_t value_dim,
                     std::vector<TensorMeta>& outputs) {
  const int64_t Nkv = attrs.integer("num_kv_heads");
  const int64_t D = attrs.integer("head_dim");
  if (q.rank != 2 || !q[1].is_fixed() || Nkv <= 0 || D <= 0 || q[1].offset <= 0 ||
      q[1].offset % (Nkv * D) != 0) {
    return invalid_argument(fmt::format(
        "paged_attention: q is {}, its heads of width {} cannot share {} kv heads evenly",
        q.to_string(), D, Nkv));
  }
  if (attrs.integer("window") < 0) {
    return invalid_argument(
        fmt::format("paged_attention: the window is {}", attrs.integer("window")));
  }
  outputs.push_back({q.dtype, {q[0], SymbolicDim::fixed(q[1].offset / D * value_dim)}});
  return {};
}

Status infer_paged_attention(std::span<const TensorMeta> inputs, const Attrs& attrs,
                             std::vector<TensorMeta>& outputs) {
  const TensorMeta &q = inputs[0], &k = inputs[1], &v = inputs[2];
  const int64_t Nkv = attrs.integer("num_kv_heads");
  const int64_t D = attrs.integer("head_dim");
  if (q.rank != 2 || k.rank != 2 || v.rank != 2 || !(k[0] == q[0]) || !(v[0] == q[0]) ||
      k.dtype != q.dtype || v.dtype != q.dtype) {
    return invalid_argument(fmt::format(
        "paged_attention takes [T, Nq*D], [T, Nkv*D] and [T, Nkv*Dv], got {}, {} and {}",
        q.to_string(), k.to_string(), v.to_string()));
  }
  if (Nkv <= 0 || D <= 0 || !(k[1] == SymbolicDim::fixed(Nkv * D))) {
    return invalid_argument(fmt::format("paged_attention: k is {}, not {} kv heads of width {}",
                                        k.to_string(), Nkv, D));
  }
  if (!v[1].is_fixed() || v[1].offset <= 0 || v[1].offset % Nkv != 0) {
    return invalid_argument(
        fmt::format("paged_attention: v is {}, not {} kv heads", v.to_string(), Nkv));
  }
  return infer_queries(q, attrs, v[1].offset / Nkv, outputs);
}

Status infer_attention_to_pages(std::span<const TensorMeta> inputs, const Attrs& attrs,
                                std::vector<TensorMeta>& outputs) {
  return infer_queries(inputs[0], attrs, attrs.integer("head_dim"), outputs);
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
  const int64_t D = attrs.integer("head_dim");
  const int64_t Dv = inputs.size() > 1 ? inputs[2][1].offset / attrs.integer("num_kv_heads") : D;
  return paged_attention_workspace_bytes(context, inputs[0][0].at(largest), D, Dv);
}

Status infer_segment_attention(std::span<const TensorMeta> inputs, const Attrs& attrs,
                               std::vector<TensorMeta>& outputs) {
  const TensorMeta &q = inputs[0], &segments = inputs[3];
  const int64_t D = attrs.integer("head_dim");
  if (q.rank != 2 || !q[1].is_fixed() || D <= 0 || D % 8 != 0 || q[1].offset % D != 0 ||
      !(inputs[1] == q) || !(inputs[2] == q)) {
    return invalid_argument(fmt::format(
        "segment_attention takes q, k and v of one shape with heads of {}, a multiple of 8, got "
        "{}, {} and {}",
        D, q.to_string(), inputs[1].to_string(), inputs[2].to_string()));
  }
  if (!(segments == TensorMeta(DType::kI32, {q[0], SymbolicDim::fixed(2)}))) {
    return invalid_argument(fmt::format("segment_attention: segments are {}, q is {}",
                                        segments.to_string(), q.to_string()));
  }
  outputs.push_back(q);
  return {};
}

int64_t segment_attention_workspace(std::span<const TensorMeta> inputs, const Attrs& attrs,
                                    const Extents& largest, const Context& context) {
  return segment_attention_workspace_bytes(context, inputs[0][0].at(largest),
                                           attrs.integer("head_dim"));
}

Status launch_segment_attention(Context& context, const LaunchArgs& args) {
  return segment_attention(context, {.q = args.inputs[0],
                                     .k = args.inputs[1],
                                     .v = args.inputs[2],
                                     .segments = args.inputs[3],
                                     .y = args.outputs[0],
                                     .head_dim = args.attrs.integer("head_dim"),
                                     .scale = static_cast<float>(args.attrs.real("scale")),
                                     .workspace = args.workspace});
}

Result<KvLayer> kv_layer(const char* op, const LaunchArgs& args) {
  const auto layer = static_cast<size_t>(args.attrs.integer("layer"));
  if (layer >= args.forward.kv_layers.size()) {
    return invalid_argument(
        fmt::format("{}: layer {} of {} KV layers", op, layer, args.forward.kv_layers.size()));
  }
  return args.forward.kv_layers[layer];
}

Result<PagedAttentionArgs> attention_args(const LaunchArgs& args) {
  HEDDLE_ASSIGN_OR_RETURN(const KvLayer kv, kv_layer("paged_attention", args));
  const bool appends = args.inputs.size() > 1;
  const int64_t Nkv = args.attrs.integer("num_kv_heads");
  return PagedAttentionArgs{.q = args.inputs[0],
                            .k = appends ? args.inputs[1] : TensorView(),
                            .v = appends ? args.inputs[2] : TensorView(),
                            .y = args.outputs[0],
                            .num_kv_heads = Nkv,
                            .head_dim = args.attrs.integer("head_dim"),
                            .value_dim = appends ? args.inputs[2].shape[1] / Nkv : 0,
                            .scale = static_cast<float>(args.attrs.real("scale")),
                            .window = args.attrs.integer("window"),
                            .sinks = args.inputs.size() > 3 ? args.inputs[3] : TensorView(),
                            .kv = kv,
                            .forward = &args.forward,
                            .workspace = args.workspace};
}

Status launch_paged_attention(Context& context, const LaunchArgs& args) {
  HEDDLE_ASSIGN_OR_RETURN(const PagedAttentionArgs attention, attention_args(args));
  return paged_attention(context, attention);
}

// A chain of rope nodes for queries and keys, with or without a norm, and attention.
Result<bool> launch_rotated(Context& context, std::span<const ChainedOp> chain) {
  HEDDLE_ASSIGN_OR_RETURN(const PagedAttentionArgs attention, attention_args(chain[2].args));
  const RotateAppendArgs args{
      .q = rope_args(chain[0].args), .k = rope_args(chain[1].args), .attention = attention};
  if (!rotate_append_fits(args)) return false;
  auto& cuda = static_cast<CudaContext&>(context);
  HEDDLE_RETURN_IF_ERROR(rotate_append_cuda(cuda, args));
  HEDDLE_RETURN_IF_ERROR(attend_to_pages_cuda(cuda, attention));
  return true;
}

Status infer_latent_attention(std::span<const TensorMeta> inputs, const Attrs& attrs,
                              std::vector<TensorMeta>& outputs) {
  const TensorMeta &q = inputs[0], &latent = inputs[1];
  const int64_t Dv = attrs.integer("value_dim");
  if (q.rank != 2 || !q[1].is_fixed() || latent.rank != 2 || !latent[1].is_fixed() ||
      !(latent[0] == q[0]) || latent.dtype != q.dtype || latent[1].offset <= 0 ||
      q[1].offset % latent[1].offset != 0) {
    return invalid_argument(
        fmt::format("latent_attention takes [T, Nq*D] and [T, D], got {} and {}", q.to_string(),
                    latent.to_string()));
  }
  if (Dv <= 0 || Dv > latent[1].offset) {
    return invalid_argument(
        fmt::format("latent_attention: values of width {} do not lie within the latent rows {}", Dv,
                    latent.to_string()));
  }
  const int64_t num_heads = q[1].offset / latent[1].offset;
  outputs.push_back({q.dtype, {q[0], SymbolicDim::fixed(num_heads * Dv)}});
  return {};
}

int64_t latent_attention_workspace(std::span<const TensorMeta> inputs, const Attrs& attrs,
                                   const Extents& largest, const Context& context) {
  return paged_attention_workspace_bytes(context, inputs[0][0].at(largest), inputs[1][1].offset,
                                         attrs.integer("value_dim"));
}

Status launch_latent_attention(Context& context, const LaunchArgs& args) {
  HEDDLE_ASSIGN_OR_RETURN(const KvLayer kv, kv_layer("latent_attention", args));
  return paged_attention(context, {.q = args.inputs[0],
                                   .k = args.inputs[1],
                                   .v = {},
                                   .y = args.outputs[0],
                                   .num_kv_heads = 1,
                                   .head_dim = args.inputs[1].shape[1],
                                   .value_dim = args.attrs.integer("value_dim"),
                                   .scale = static_cast<float>(args.attrs.real("scale")),
                                   .sinks = {},
                                   .kv = kv,
                                   .forward = &args.forward,
                                   .workspace = args.workspace});
}

// The sizes of a layer's key and value projection [N * (Dn + Dv), C].
struct LatentShape {
  int64_t num_heads = 0;
  int64_t key_dim = 0;    // Dn: channels of a key that come from the latent row
  int64_t value_dim = 0;  // Dv, channels of a value head
  int64_t latent_dim = 0;
};

Result<LatentShape> latent_shape(const char* op, std::span<const TensorMeta> inputs,
                                 const Attrs& attrs) {
  const TensorMeta &x = inputs[0], &weight = inputs[1];
  LatentShape shape{.num_heads = attrs.integer("num_heads"), .key_dim = attrs.integer("key_dim")};
  const int64_t N = shape.num_heads;
  const bool fits = x.rank == 2 && x[1].is_fixed() && weight.rank == 2 && N > 0 &&
                    shape.key_dim > 0 && weight[0].is_fixed() && weight[1].is_fixed() &&
                    weight[0].offset % N == 0 && weight[0].offset > N * shape.key_dim &&
                    x[1].offset % N == 0;
  if (!fits) {
    return invalid_argument(
        fmt::format("{} takes rows for {} heads and a weight [N*(Dn+Dv), C] with Dn = {}, got {} "
                    "and {}",
                    op, N, shape.key_dim, x.to_string(), weight.to_string()));
  }
  shape.value_dim = weight[0].offset / N - shape.key_dim;
  shape.latent_dim = weight[1].offset;
  return shape;
}

Status infer_absorb_query(std::span<const TensorMeta> inputs, const Attrs& attrs,
                          std::vector<TensorMeta>& outputs) {
  HEDDLE_ASSIGN_OR_RETURN(const LatentShape shape, latent_shape("absorb_query", inputs, attrs));
  const TensorMeta& q = inputs[0];
  const int64_t rest = q[1].offset / shape.num_heads - shape.key_dim;
  if (rest < 0) {
    return invalid_argument(fmt::format("absorb_query: {} has no {} heads of at least {} channels",
                                        q.to_string(), shape.num_heads, shape.key_dim));
  }
  outputs.push_back(
      {q.dtype, {q[0], SymbolicDim::fixed(shape.num_heads * (shape.latent_dim + rest))}});
  return {};
}

Status infer_expand_values(std::span<const TensorMeta> inputs, const Attrs& attrs,
                           std::vector<TensorMeta>& outputs) {
  HEDDLE_ASSIGN_OR_RETURN(const LatentShape shape, latent_shape("expand_values", inputs, attrs));
  const TensorMeta& o = inputs[0];
  if (o[1].offset != shape.num_heads * shape.latent_dim) {
    return invalid_argument(fmt::format("expand_values: {} is not {} heads of {} channels",
                                        o.to_string(), shape.num_heads, shape.latent_dim));
  }
  outputs.push_back({o.dtype, {o[0], SymbolicDim::fixed(shape.num_heads * shape.value_dim)}});
  return {};
}

LatentProjectionArgs latent_projection_args(const LaunchArgs& args) {
  return {.x = args.inputs[0],
          .weight = args.inputs[1],
          .y = args.outputs[0],
          .num_heads = args.attrs.integer("num_heads"),
          .key_dim = args.attrs.integer("key_dim")};
}

Status launch_absorb_query(Context& context, const LaunchArgs& args) {
  return absorb_query(context, latent_projection_args(args));
}

Status launch_expand_values(Context& context, const LaunchArgs& args) {
  return expand_values(context, latent_projection_args(args));
}

}  // namespace

std::span<const OpDef> attention_ops() {
  static const OpDef kOps[] = {
      {.name = "paged_attention",
       .effects = kReadsContext | kWritesState | kSplit,
       .coverage = WriteCoverage::kRealRows,
       .num_inputs = 3,
       .aliases = {},
       .infer = infer_paged_attention,
       .workspace_bytes = paged_attention_workspace,
       .launch = launch_paged_attention},
      {.name = "paged_attention_sinks",
       .effects = kReadsContext | kWritesState | kSplit,
       .coverage = WriteCoverage::kRealRows,
       .num_inputs = 4,
       .aliases = {},
       .infer = infer_paged_attention_sinks,
       .workspace_bytes = paged_attention_workspace,
       .launch = launch_paged_attention},
      {.name = "attention_to_pages",
       .effects = kReadsContext | kSplit,
       .coverage = WriteCoverage::kRealRows,
       .num_inputs = 1,
       .aliases = {},
       .infer = infer_attention_to_pages,
       .workspace_bytes = paged_attention_workspace,
       .launch = launch_paged_attention},
      {.name = "latent_attention",
       .effects = kReadsContext | kWritesState | kSplit,
       .coverage = WriteCoverage::kRealRows,
       .num_inputs = 2,
       .aliases = {},
       .infer = infer_latent_attention,
       .workspace_bytes = latent_attention_workspace,
       .launch = launch_latent_attention},
      {.name = "segment_attention",
       .num_inputs = 4,
       .aliases = {},
       .infer = infer_segment_attention,
       .workspace_bytes = segment_attention_workspace,
       .launch = launch_segment_attention},
      {.name = "absorb_query",
       .num_inputs = 2,
       .aliases = {},
       .infer = infer_absorb_query,
       .launch = launch_absorb_query},
      {.name = "expand_values",
       .num_inputs = 2,
       .aliases = {},
       .infer = infer_expand_values,
       .launch = launch_expand_values},
  };
  return kOps;
}

std::span<const OpChain> attention_chains() {
  static constexpr std::string_view kNormed[] = {"qk_norm_rope", "qk_norm_rope", "paged_attention"};
  static constexpr std::string_view kPlain[] = {"rope", "rope", "paged_attention"};
  static constexpr std::string_view kSinks[] = {"rope", "rope", "paged_attention_sinks"};
  static constexpr OpChain::Link kLinks[] = {{.from = 0, .to = 2, .input = 0},
                                             {.from = 1, .to = 2, .input = 1}};
  static constexpr OpChain kChains[] = {{.ops = kNormed, .links = kLinks, .launch = launch_rotated},
                                        {.ops = kPlain, .links = kLinks, .launch = launch_rotated},
                                        {.ops = kSinks, .links = kLinks, .launch = launch_rotated}};
  return kChains;
}

}  // namespace heddle::ops
