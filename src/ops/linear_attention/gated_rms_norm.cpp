// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/gated_rms_norm.h"

#include <cmath>

#include <fmt/format.h>

#include "core/shape_contract.h"

namespace heddle::ops {

Status gated_rms_norm(Context& context, const GatedRmsNormArgs& args) {
  Dim T{"T"}, width{"N * D"}, D{"D"};
  HEDDLE_RETURN_IF_ERROR(ShapeContract("gated_rms_norm")
                             .expect("x", args.x, {&T, &width}, activations(context))
                             .expect("z", args.z, {&T, &width}, args.x.dtype)
                             .expect("weight", args.weight, {&D}, DType::kF32)
                             .expect("y", args.y, {&T, &width}, args.x.dtype)
                             .require(args.epsilon >= 0 && std::isfinite(args.epsilon), "epsilon",
                                      static_cast<double>(args.epsilon),
                                      "be finite and not negative")
                             .require(D > 0, "D", static_cast<double>(D.value()), "be positive")
                             .status());
  if (width % D != 0) {
    return invalid_argument(fmt::format(
        "gated_rms_norm: x has rows of {}, not a multiple of D = {}", width.value(), D.value()));
  }
  return HEDDLE_DISPATCH_DEVICE(context, gated_rms_norm, args);
}

}  // namespace heddle::ops
