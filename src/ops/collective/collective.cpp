// SPDX-License-Identifier: Apache-2.0
#include "ops/collective/collective.h"

#include <bit>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "distributed/rank_group.h"
#include "ops/registry.h"

namespace heddle::ops {

namespace {

using distributed::Shown;

// Checks that the context belongs to a rank on the CPU. Ranks on other devices are not implemented.
Status check_ranks_of(const Context& context, const char* op) {
  if (context.device != DeviceKind::kCpu) {
    return invalid_argument(fmt::format("{} is computed on the CPU only", op));
  }
  if (context.ranks != nullptr) return {};
  return invalid_argument(fmt::format("{}: the context belongs to no rank of a group", op));
}

void add_row(std::span<const Shown> ranks, int64_t t, const MutableTensorView& y) {
  const int64_t N = y.shape[1];
  float* const sum = y.row<float>(t);
  const float* const first = ranks[0].tensor.row<float>(t);
  if (ranks.size() == 1) {
    std::memcpy(sum, first, static_cast<size_t>(N) * sizeof(float));
    return;
  }
  const float* const second = ranks[1].tensor.row<float>(t);
  for (int64_t n = 0; n < N; ++n) sum[n] = first[n] + second[n];
  for (const Shown& rank : ranks.subspan(2)) {
    const float* const term = rank.tensor.row<float>(t);
    for (int64_t n = 0; n < N; ++n) sum[n] += term[n];
  }
}

// Combines the bits as integers: adding floats would lose the sign of -0 and the bits of NaNs.
void join_row(std::span<const Shown> ranks, int64_t t, const MutableTensorView& y) {
  auto* const bits = y.row<float>(t);
  for (int64_t n = 0; n < y.shape[1]; ++n) {
    uint32_t joined = 0;
    for (const Shown& rank : ranks) joined |= std::bit_cast<uint32_t>(rank.tensor.row<float>(t)[n]);
    bits[n] = std::bit_cast<float>(joined);
  }
}

}  // namespace

Status all_reduce(Context& context, Reduction reduction, const TensorView& x,
                  const MutableTensorView& y) {
  const char* const op = reduction == Reduction::kSum ? "all_reduce" : "all_reduce_bits";
  HEDDLE_RETURN_IF_ERROR(check_ranks_of(context, op));
  Dim T{"T"}, N{"N"};
  HEDDLE_RETURN_IF_ERROR(ShapeContract(op)
                             .expect("x", x, {&T, &N}, activations(context))
                             .expect("y", y, {&T, &N}, x.dtype)
                             .status());
  return context.ranks->meet({op, x, N.value(), 0}, [&](std::span<const Shown> ranks) {
    for (int64_t t = 0; t < T; ++t) {
      reduction == Reduction::kSum ? add_row(ranks, t, y) : join_row(ranks, t, y);
    }
  });
}

Status gather_columns(Context& context, const TensorView& x, int64_t each,
                      const MutableTensorView& y) {
  constexpr const char* kOp = "gather_columns";
  HEDDLE_RETURN_IF_ERROR(check_ranks_of(context, kOp));
  Dim T{"T"}, n{"n"}, N{"N"};
  ShapeContract contract(kOp);
  contract.expect("x", x, {&T, &n}, x.dtype).expect("y", y, {&T, &N}, x.dtype);
  HEDDLE_RETURN_IF_ERROR(contract.status());
  const distributed::Communicator& own = *context.ranks;
  contract
      .require(each > 0 && own.size() * each >= N, "each", static_cast<double>(each),
               "give every column to a rank")
      .require(n == gathered_columns(own.rank(), each, N), "n", static_cast<double>(n.value()),
               "be the rank's columns");
  HEDDLE_RETURN_IF_ERROR(contract.status());
  return own.meet({kOp, x, N.value(), each}, [&](std::span<const Shown> ranks) {
    for (int64_t t = 0; t < T; ++t) {
      auto* target = y.as<std::byte>() + bytes_of(y.dtype, t * y.row_stride);
      for (const Shown& rank : ranks) {
        const TensorView& part = rank.tensor;
        const auto width = static_cast<size_t>(bytes_of(part.dtype, part.shape[1]));
        const auto* source = part.as<std::byte>() + bytes_of(part.dtype, t * part.row_stride);
        std::memcpy(target, source, width);
        target += width;
      }
    }
  });
}

namespace {

Status infer_all_reduce(std::span<const TensorMeta> inputs, const Attrs&,
                        std::vector<TensorMeta>& outputs) {
  const TensorMeta& x = inputs[0];
  if (x.rank != 2 || !kFloating.contains(x.dtype)) {
    return invalid_argument(fmt::format("takes floating [T, N], got {}", x.to_string()));
  }
  outputs.push_back(x);
  return {};
}

Status infer_gather_columns(std::span<const TensorMeta> inputs, const Attrs& attrs,
                            std::vector<TensorMeta>& outputs) {
  const TensorMeta& x = inputs[0];
  const int64_t each = attrs.integer("each"), width = attrs.integer("width");
  if (x.rank != 2 || !x[1].is_fixed() || each < 1 || x[1].offset > each || width < x[1].offset) {
    return invalid_argument(fmt::format("gather_columns of {} to {} columns, {} of a rank",
                                        x.to_string(), width, each));
  }
  outputs.push_back(TensorMeta(x.dtype, {x[0], SymbolicDim::fixed(width)}));
  return {};
}

template <Reduction kReduction>
Status launch_all_reduce(Context& context, const LaunchArgs& args) {
  return all_reduce(context, kReduction, args.inputs[0], args.outputs[0]);
}

Status launch_gather_columns(Context& context, const LaunchArgs& args) {
  return gather_columns(context, args.inputs[0], args.attrs.integer("each"), args.outputs[0]);
}

}  // namespace

std::span<const OpDef> collective_ops() {
  static const OpDef kOps[] = {{.name = "all_reduce",
                                .effects = kCollective,
                                .num_inputs = 1,
                                .infer = infer_all_reduce,
                                .launch = launch_all_reduce<Reduction::kSum>},
                               {.name = "all_reduce_bits",
                                .effects = kCollective,
                                .num_inputs = 1,
                                .infer = infer_all_reduce,
                                .launch = launch_all_reduce<Reduction::kBits>},
                               {.name = "gather_columns",
                                .effects = kCollective,
                                .num_inputs = 1,
                                .infer = infer_gather_columns,
                                .launch = launch_gather_columns}};
  return kOps;
}

}  // namespace heddle::ops
