// SPDX-License-Identifier: Apache-2.0
#include "ops/moe/moe_route.h"

#include <cmath>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/gemm/product_contract.h"

namespace heddle::ops {

Status check_scoring(const char* op, const RouterScoring& scoring, const TensorView& correction,
                     int64_t E, int64_t A) {
  const int64_t G = scoring.num_groups;
  if (G < 1 || E % G != 0 || scoring.groups_kept < 1 || scoring.groups_kept > G) {
    return invalid_argument(fmt::format("{}: {} of {} groups of {} experts cannot be kept", op,
                                        scoring.groups_kept, G, E));
  }
  if (scoring.groups_kept * (E / G) < A) {
    return invalid_argument(fmt::format("{}: {} groups of {} experts have no {} to choose", op,
                                        scoring.groups_kept, E / G, A));
  }
  if (scoring.group_terms < 1 || scoring.group_terms > 2 || scoring.group_terms > E / G) {
    return invalid_argument(
        fmt::format("{}: groups of {} experts are ranked by {} of them; 1 and 2 are served", op,
                    E / G, scoring.group_terms));
  }
  if (!(scoring.sum_epsilon >= 0 && scoring.sum_epsilon < 1)) {
    return invalid_argument(
        fmt::format("{}: sum_epsilon is {}, it must lie between 0 and 1", op, scoring.sum_epsilon));
  }
  const bool mixes = scoring.score == RouterScore::kSparsemixer;
  if (mixes && (G > 1 || correction.data != nullptr || !(scoring.nearness >= 0))) {
    return invalid_argument(fmt::format(
        "{}: the sparsemixer has {} groups, {} correction and a nearness of {}; give it one group, "
        "no correction and a nearness of 0 or more",
        op, G, correction.data == nullptr ? "no" : "a", scoring.nearness));
  }
  if (!std::isfinite(scoring.scale)) {
    return invalid_argument(
        fmt::format("{}: the scale is {}, it must be finite", op, scoring.scale));
  }
  const bool plain = scoring == RouterScoring{} && correction.data == nullptr;
  if (!plain && E > kMaxScoredExperts) {
    return invalid_argument(
        fmt::format("{}: {} experts; where the router is not a plain softmax, {} are served", op, E,
                    kMaxScoredExperts));
  }
  if (correction.data == nullptr) return {};
  Dim experts{"E", E};
  return ShapeContract(op).expect("correction", correction, {&experts}, DType::kF32).status();
}

Status moe_route(Context& context, const MoeRouteArgs& args) {
  Dim T{"T"}, E{"E"}, A{"A"};
  ShapeContract contract("moe_route");
  contract.expect("logits", args.logits, {&T, &E}, DType::kF32)
      .expect("experts", args.experts, {&T, &A}, DType::kI32)
      .expect("weights", args.weights, {&T, &A}, DType::kF32);
  require_row_stride(contract, "logits", args.logits);
  require_row_stride(contract, "experts", args.experts);
  require_row_stride(contract, "weights", args.weights);
  contract.require(A >= 1 && A <= E && A <= kMaxExpertsPerToken, "A, the experts per token,",
                   static_cast<double>(A.value()), "be in [1, min(E, 64)]");
  if (args.expert_scales.data != nullptr) {
    contract.expect("expert_scales", args.expert_scales, {&E}, DType::kF32);
  }
  HEDDLE_RETURN_IF_ERROR(contract.status());
  HEDDLE_RETURN_IF_ERROR(check_scoring("moe_route", args.scoring, args.correction, E, A));
  return HEDDLE_DISPATCH_DEVICE(context, moe_route, args);
}

}  // namespace heddle::ops
