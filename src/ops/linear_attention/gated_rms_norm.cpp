// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/gated_rms_norm.h"

#include <cmath>

#include <fmt/format.h>

#include "core/shape_contract.h"

namespace heddle::ops {

Status gated_rms_norm(Context& context, const GatedRmsNormArgs& args) {
  Dim T{"T"}, width{"N * D"}, V{"V"};
  GatedRmsNormArgs resolved = args;
  if (args.group_width == 0)
    resolved.group_width = args.weight.shape.rank() == 1 ? args.weight.shape[0] : 0;
  const int64_t D = resolved.group_width;
  HEDDLE_RETURN_IF_ERROR(ShapeContract("gated_rms_norm")
                             .expect("x", args.x, {&T, &width}, activations(context))
                             .expect("z", args.z, {&T, &width}, args.x.dtype)
                             .expect("weight", args.weight, {&V}, DType::kF32)
                             .expect("y", args.y, {&T, &width}, args.x.dtype)
                             .require(args.epsilon >= 0 && std::isfinite(args.epsilon), "epsilon",
                                      static_cast<double>(args.epsilon),
                                      "be finite and not negative")
                             .require(D > 0, "D", static_cast<double>(D), "be positive")
                             .status());
  if (width % D != 0) {
    return invalid_argument(fmt::format(
        "gated_rms_norm: x has rows of {}, not a multiple of D = {}", width.value(), D));
  }
  if (V != D && V != width) {
    return invalid_argument(
        fmt::format("gated_rms_norm: weight has V = {}, neither D = {} nor x's {}", V.value(), D,
                    width.value()));
  }
  return HEDDLE_DISPATCH_DEVICE(context, gated_rms_norm, resolved);
}

}  // namespace heddle::ops
