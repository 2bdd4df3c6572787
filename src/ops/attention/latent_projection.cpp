// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/latent_projection.h"

#include <fmt/format.h>

#include "core/shape_contract.h"

namespace heddle::ops {

namespace {

constexpr int64_t kMaxDim = 65536;

// Checks the arguments that both products share: all except the widths of x and y.
Status check_heads(const char* op, const LatentProjectionArgs& args) {
  HEDDLE_RETURN_IF_ERROR(ShapeContract(op)
                             .require(args.num_heads > 0 && args.num_heads <= kMaxDim, "num_heads",
                                      static_cast<double>(args.num_heads),
                                      "lie between 1 and 65536")
                             .require(args.key_dim > 0 && args.key_dim <= kMaxDim, "key_dim",
                                      static_cast<double>(args.key_dim), "lie between 1 and 65536")
                             .status());
  if (args.weight.shape.rank() != 2 || args.weight.shape[0] % args.num_heads != 0 ||
      args.weight.shape[0] / args.num_heads <= args.key_dim) {
    return invalid_argument(fmt::format(
        "{}: the weight is {}, not rows of a key part of {} and a value part for {} heads", op,
        args.weight.shape.to_string(), args.key_dim, args.num_heads));
  }
  return {};
}

}  // namespace

Status absorb_query(Context& context, const LatentProjectionArgs& args) {
  HEDDLE_RETURN_IF_ERROR(check_heads("absorb_query", args));
  Dim T{"T"}, rows{"N * (Dn + Dv)"}, C{"C"}, x_width{"N * (Dn + Dr)"}, y_width{"N * (C + Dr)"};
  HEDDLE_RETURN_IF_ERROR(ShapeContract("absorb_query")
                             .expect("x", args.x, {&T, &x_width}, activations(context))
                             .expect("weight", args.weight, {&rows, &C}, kFloating)
                             .expect("y", args.y, {&T, &y_width}, args.x.dtype)
                             .status());
  const int64_t N = args.num_heads;
  if (x_width % N != 0 || x_width / N < args.key_dim ||
      y_width != x_width + N * (C - args.key_dim)) {
    return invalid_argument(
        fmt::format("absorb_query: rows of {} become rows of {}, which does not fit {} heads, keys "
                    "of {} and latents of {}",
                    x_width.value(), y_width.value(), N, args.key_dim, C.value()));
  }
  return HEDDLE_DISPATCH_DEVICE(context, absorb_query, args);
}

Status expand_values(Context& context, const LatentProjectionArgs& args) {
  HEDDLE_RETURN_IF_ERROR(check_heads("expand_values", args));
  const int64_t N = args.num_heads;
  Dim T{"T"}, rows{"N * (Dn + Dv)"}, C{"C", args.weight.shape[1]};
  Dim x_width{"N * C", N * C}, y_width{"N * Dv", args.weight.shape[0] - N * args.key_dim};
  HEDDLE_RETURN_IF_ERROR(ShapeContract("expand_values")
                             .expect("x", args.x, {&T, &x_width}, activations(context))
                             .expect("weight", args.weight, {&rows, &C}, kFloating)
                             .expect("y", args.y, {&T, &y_width}, args.x.dtype)
                             .status());
  return HEDDLE_DISPATCH_DEVICE(context, expand_values, args);
}

}  // namespace heddle::ops
