// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope.h"

#include <cmath>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

Status check_axes(const Context& context, const RopeArgs& args) {
  if (context.device != DeviceKind::kCpu) {
    return unimplemented("rope has no CUDA kernel for positions on several axes");
  }
  const int64_t A = args.positions.shape[1];
  if (A < 1 || A > kMaxAxes || args.inverse_frequencies.shape.rank() != 1) {
    return invalid_argument(fmt::format(
        "rope: positions {} and inverse_frequencies {}, with axes [T, A] of up to {} and [R/2]",
        args.positions.shape.to_string(), args.inverse_frequencies.shape.to_string(), kMaxAxes));
  }
  for (int64_t i = 0; i < args.axes.shape[0]; ++i) {
    const int32_t axis = args.axes.as<int32_t>()[i];
    if (axis < 0 || axis >= A) {
      return invalid_argument(fmt::format("rope: pair {} turns by axis {} of {}", i, axis, A));
    }
  }
  return {};
}

}  // namespace

Status rope(Context& context, const RopeArgs& args) {
  Dim T{"T"}, W{"N*D"}, two{"2", 2}, half{"R/2"}, D{"D", args.head_dim}, A{"A"};
  ShapeContract contract("rope");
  contract.expect("x", args.x, {&T, &W}, activations(context))
      .expect("y", args.y, {&T, &W}, args.x.dtype);
  const bool has_axes = args.axes.data != nullptr;
  if (has_axes) {
    contract.expect("positions", args.positions, {&T, &A}, DType::kI32)
        .expect("axes", args.axes, {&half}, DType::kI32);
  } else {
    contract.expect("positions", args.positions, {&T}, DType::kI32);
  }
  if (args.inverse_frequencies.shape.rank() == 2) {
    contract.expect("inverse_frequencies", args.inverse_frequencies, {&two, &half}, DType::kF32);
  } else {
    contract.expect("inverse_frequencies", args.inverse_frequencies, {&half}, DType::kF32);
  }
  if (args.norm_weight.data != nullptr) {
    contract.expect("norm_weight", args.norm_weight, {&D}, DType::kF32);
  }
  HEDDLE_RETURN_IF_ERROR(contract.status());
  if (D <= 0 || W % D != 0 || args.first_channel < 0 || args.first_channel + 2 * half > D ||
      half > kMaxRotaryPairs) {
    return invalid_argument(
        fmt::format("rope: heads of {} channels, {} rotated pairs from channel {}, rows of {}",
                    D.value(), half.value(), args.first_channel, W.value()));
  }
  if (has_axes) HEDDLE_RETURN_IF_ERROR(check_axes(context, args));
  return HEDDLE_DISPATCH_DEVICE(context, rope, args);
}

Status position_scale(Context& context, const PositionScaleArgs& args) {
  Dim T{"T"}, one{"1", 1};
  HEDDLE_RETURN_IF_ERROR(
      ShapeContract("position_scale")
          .expect("positions", args.positions, {&T}, DType::kI32)
          .expect("y", args.y, {&T, &one}, DType::kF32)
          .require(args.length > 0, "length", static_cast<double>(args.length), "be positive")
          .status());
  return HEDDLE_DISPATCH_DEVICE(context, position_scale, args);
}

Status position_scale_cpu(CpuContext& /*context*/, const PositionScaleArgs& args) {
  for (int64_t t = 0; t < args.y.shape[0]; ++t) {
    const int64_t contexts = (args.positions.as<int32_t>()[t] & ~kLongRope) / args.length;
    *args.y.row<float>(t) =
        static_cast<float>(1 + args.beta * std::log1p(static_cast<double>(contexts)));
  }
  return {};
}

namespace {

Status infer_position_scale(std::span<const TensorMeta> inputs, const Attrs& /*attrs*/,
                            std::vector<TensorMeta>& outputs) {
  const TensorMeta& positions = inputs[0];
  if (positions.rank != 1 || positions.dtype != DType::kI32) {
    return invalid_argument(
        fmt::format("position_scale takes int32[T], got {}", positions.to_string()));
  }
  outputs.push_back(TensorMeta(DType::kF32, {positions[0], SymbolicDim::fixed(1)}));
  return {};
}

Status launch_position_scale(Context& context, const LaunchArgs& args) {
  return position_scale(context, {.positions = args.inputs[0],
                                  .y = args.outputs[0],
                                  .beta = args.attrs.real("beta"),
                                  .length = args.attrs.integer("length")});
}

Status infer_heads(const TensorMeta& x, const TensorMeta& positions, const TensorMeta& frequencies,
                   const Attrs& attrs, int64_t first_channel, std::vector<TensorMeta>& outputs) {
  const int64_t D = attrs.integer("head_dim");
  const bool has_tables =
      frequencies.rank == 1 || (frequencies.rank == 2 && frequencies[0].offset == 2);
  if (x.rank != 2 || positions.rank != 1 || !has_tables || !(positions[0] == x[0]) ||
      positions.dtype != DType::kI32) {
    return invalid_argument(
        fmt::format("rope takes [T, N*D], int32[T] and [R/2] or [2, R/2], got {}, {} and {}",
                    x.to_string(), positions.to_string(), frequencies.to_string()));
  }
  const int64_t pairs = frequencies[frequencies.rank - 1].offset;
  if (D <= 0 || x[1].offset % D != 0 || first_channel < 0 || first_channel + 2 * pairs > D ||
      pairs > kMaxRotaryPairs) {
    return invalid_argument(
        fmt::format("rope: heads of {} channels do not fit x {} with frequencies {} from channel "
                    "{}",
                    D, x.to_string(), frequencies.to_string(), first_channel));
  }
  outputs.push_back(x);
  return {};
}

Status infer_rope(std::span<const TensorMeta> inputs, const Attrs& attrs,
                  std::vector<TensorMeta>& outputs) {
  return infer_heads(inputs[0], inputs[1], inputs[2], attrs, 0, outputs);
}

Status infer_rope_channels(std::span<const TensorMeta> inputs, const Attrs& attrs,
                           std::vector<TensorMeta>& outputs) {
  return infer_heads(inputs[0], inputs[1], inputs[2], attrs, attrs.integer("first_channel"),
                     outputs);
}

Status infer_rope_axes(std::span<const TensorMeta> inputs, const Attrs& attrs,
                       std::vector<TensorMeta>& outputs) {
  const TensorMeta &positions = inputs[1], &frequencies = inputs[2], &axes = inputs[3];
  if (positions.rank != 2 || !positions[1].is_fixed() || frequencies.rank != 1 ||
      !(axes == TensorMeta(DType::kI32, {frequencies[0]}))) {
    return invalid_argument(
        fmt::format("rope_axes takes int32[T, A], [R/2] and int32[R/2], got {}, {} and {}",
                    positions.to_string(), frequencies.to_string(), axes.to_string()));
  }
  return infer_heads(inputs[0], {positions.dtype, {positions[0]}}, frequencies, attrs, 0, outputs);
}

Status infer_qk_norm_rope(std::span<const TensorMeta> inputs, const Attrs& attrs,
                          std::vector<TensorMeta>& outputs) {
  if (inputs[1].rank != 1 || inputs[1][0].offset != attrs.integer("head_dim")) {
    return invalid_argument(
        fmt::format("qk_norm_rope: the norm's weight is {}, heads have {} channels",
                    inputs[1].to_string(), attrs.integer("head_dim")));
  }
  return infer_heads(inputs[0], inputs[2], inputs[3], attrs, 0, outputs);
}

Status launch_rope_channels(Context& context, const LaunchArgs& args) {
  return rope(context, {.x = args.inputs[0],
                        .norm_weight = {},
                        .positions = args.inputs[1],
                        .inverse_frequencies = args.inputs[2],
                        .y = args.outputs[0],
                        .head_dim = args.attrs.integer("head_dim"),
                        .first_channel = args.attrs.integer("first_channel"),
                        .interleaved = args.attrs.integer("interleaved") != 0,
                        .factor = static_cast<float>(args.attrs.real("factor"))});
}

Status launch_rope_axes(Context& context, const LaunchArgs& args) {
  return rope(context, {.x = args.inputs[0],
                        .norm_weight = {},
                        .positions = args.inputs[1],
                        .inverse_frequencies = args.inputs[2],
                        .y = args.outputs[0],
                        .head_dim = args.attrs.integer("head_dim"),
                        .factor = static_cast<float>(args.attrs.real("factor")),
                        .axes = args.inputs[3]});
}

Status launch_rope(Context& context, const LaunchArgs& args) {
  return rope(context, rope_args(args));
}

}  // namespace

RopeArgs rope_args(const LaunchArgs& args) {
  const bool has_norm = args.inputs.size() == 4;
  RopeArgs rope{.x = args.inputs[0],
                .norm_weight = has_norm ? args.inputs[1] : TensorView(),
                .positions = args.inputs[has_norm ? 2 : 1],
                .inverse_frequencies = args.inputs[has_norm ? 3 : 2],
                .y = args.outputs[0],
                .head_dim = args.attrs.integer("head_dim"),
                .factor = static_cast<float>(args.attrs.real("factor"))};
  if (has_norm) rope.epsilon = static_cast<float>(args.attrs.real("epsilon"));
  return rope;
}

std::span<const OpDef> rope_ops() {
  static const OpDef kOps[] = {
      {.name = "rope", .num_inputs = 3, .infer = infer_rope, .launch = launch_rope},
      {.name = "qk_norm_rope", .num_inputs = 4, .infer = infer_qk_norm_rope, .launch = launch_rope},
      {.name = "rope_channels",
       .num_inputs = 3,
       .infer = infer_rope_channels,
       .launch = launch_rope_channels},
      {.name = "rope_axes", .num_inputs = 4, .infer = infer_rope_axes, .launch = launch_rope_axes},
      {.name = "position_scale",
       .num_inputs = 1,
       .infer = infer_position_scale,
       .launch = launch_position_scale},
  };
  return kOps;
}

}  // namespace heddle::ops
