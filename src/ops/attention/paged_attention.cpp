// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/paged_attention.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/attention/paged_attention_unit.h"

namespace heddle::ops {

namespace {

// Checks that the scales are valid for the dtype of the pages.
Status check_kv_format(const KvLayer& kv) {
  const bool scaled = kv.k.dtype == DType::kF8E4M3;
  for (const auto& [name, scale] : {std::pair("k_scale", kv.k_scale), {"v_scale", kv.v_scale}}) {
    if (std::isfinite(scale) && scale > 0 && (scaled || scale == 1.0f)) continue;
    return invalid_argument(
        fmt::format("paged_attention: kv.{} is {} with pages of {}, it must be {}", name, scale,
                    to_string(kv.k.dtype), scaled ? "positive and finite" : "1"));
  }
  return {};
}

}  // namespace

Status paged_attention(Context& context, const PagedAttentionArgs& args) {
  Dim T{"T"}, query_width{"Nq * D"}, D{"D", args.head_dim}, Nkv{"Nkv", args.num_kv_heads};
  Dim Dv{"Dv", value_dim_of(args)}, P{"P"}, S{"S"}, output_width{"Nq * Dv"};
  Dim kv_width{"Nkv * D", args.num_kv_heads * args.head_dim};
  Dim v_width{"Nkv * Dv", args.num_kv_heads * Dv};
  const bool appends = args.k.data != nullptr;
  const bool has_values = appends ? args.v.data != nullptr : args.kv.v.data != nullptr;
  ShapeContract contract("paged_attention");
  HEDDLE_RETURN_IF_ERROR(
      contract
          .require(args.head_dim > 0 && args.head_dim <= 65536, "head_dim",
                   static_cast<double>(args.head_dim), "lie between 1 and 65536")
          .require(Dv > 0 && Dv <= (has_values ? 65536 : args.head_dim), "value_dim",
                   static_cast<double>(args.value_dim),
                   has_values ? "lie between 1 and 65536" : "lie within the keys")
          .require(args.num_kv_heads > 0 && args.num_kv_heads <= 65536, "num_kv_heads",
                   static_cast<double>(args.num_kv_heads), "lie between 1 and 65536")
          .require(std::isfinite(args.scale), "scale", static_cast<double>(args.scale), "be finite")
          .expect("q", args.q, {&T, &query_width}, activations(context))
          .expect("y", args.y, {&T, &output_width}, args.q.dtype)
          .expect("kv.k", args.kv.k, {&P, &S, &Nkv, &D}, kFloating | DType::kF8E4M3)
          .status());
  if (appends) {
    HEDDLE_RETURN_IF_ERROR(contract.expect("k", args.k, {&T, &kv_width}, args.q.dtype).status());
  }
  if (has_values) {
    if (appends) contract.expect("v", args.v, {&T, &v_width}, args.q.dtype);
    HEDDLE_RETURN_IF_ERROR(
        contract.expect("kv.v", args.kv.v, {&P, &S, &Nkv, &Dv}, args.kv.k.dtype).status());
  } else if (args.kv.v.data != nullptr) {
    return invalid_argument("paged_attention: there is no v, but the pages have values");
  }
  HEDDLE_RETURN_IF_ERROR(check_kv_format(args.kv));
  if (query_width % kv_width != 0) {
    return invalid_argument(
        fmt::format("paged_attention: q has rows of {}, not a multiple of {} kv heads of width {}",
                    query_width.value(), args.num_kv_heads, args.head_dim));
  }
  if (output_width != query_width / args.head_dim * Dv) {
    return invalid_argument(fmt::format("paged_attention: y has rows of {}, not {} heads of {}",
                                        output_width.value(), query_width / args.head_dim,
                                        Dv.value()));
  }
  if (context.device == DeviceKind::kCuda && Dv > kAttentionColumns && args.y.data == args.q.data) {
    return invalid_argument(
        fmt::format("paged_attention: y is q with heads of {}, on CUDA that takes at most {}",
                    Dv.value(), kAttentionColumns));
  }
  if (args.window < 0) {
    return invalid_argument(fmt::format(
        "paged_attention: the window is {}, it must be 0 (all tokens) or positive", args.window));
  }
  if (args.sinks.data != nullptr) {
    Dim Nq{"Nq", query_width / args.head_dim};
    HEDDLE_RETURN_IF_ERROR(
        ShapeContract("paged_attention").expect("sinks", args.sinks, {&Nq}, DType::kF32).status());
  }
  HEDDLE_RETURN_IF_ERROR(check_rows("paged_attention", args.forward, T));
  HEDDLE_DCHECK(check_page_ids(*args.forward, args.kv.table, P, S)
                    .ok());  // check_batch() has checked it once for all layers
  const int64_t needed = paged_attention_workspace_bytes(context, T, args.head_dim, Dv);
  if (static_cast<int64_t>(args.workspace.size()) < needed) {
    return invalid_argument(
        fmt::format("paged_attention: the workspace has {} bytes, {} rows need {}",
                    args.workspace.size(), T.value(), needed));
  }
  return HEDDLE_DISPATCH_DEVICE(context, paged_attention, args);
}

}  // namespace heddle::ops
