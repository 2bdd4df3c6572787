// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/embedding.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/shape_contract.h"
#include "ops/cpu/row_tasks.h"
#include "ops/registry.h"
#include "quant/dequantise.h"

namespace heddle::ops {

Status embedding(Context& context, const EmbeddingArgs& args) {
  Dim T{"T"}, V{"V"}, H{"H"};
  HEDDLE_RETURN_IF_ERROR(ShapeContract("embedding")
                             .expect("ids", args.ids, {&T}, DType::kI32)
                             .expect("table", args.table, {&V, &H},
                                     context.device == DeviceKind::kCpu ? kWeights : kFloating)
                             .expect("y", args.y, {&T, &H}, activations(context))
                             .status());
  return HEDDLE_DISPATCH_DEVICE(context, embedding, args);
}

namespace {

template <typename Scalar>
void copy_row_of(const TensorView& table, int64_t row, float* target) {
  const auto* source = table.row<Scalar>(row);
  for (int64_t h = 0; h < table.shape[1]; ++h) target[h] = to_float(source[h]);
}

void copy_row(const TensorView& table, int64_t row, float* target) {
  switch (table.dtype) {
    case DType::kBf16:
      return copy_row_of<Bf16>(table, row, target);
    case DType::kF16:
      return copy_row_of<F16>(table, row, target);
    case DType::kPacked: {
      const auto part = std::ranges::find_if(table.packed->parts, [row](const auto& rows) {
        return row < rows.first_row + rows.num_rows;
      });
      row -= part->first_row;
      if (part->plain.data != nullptr) return copy_row(part->plain, row, target);
      return quant::dequantise_row(part->packed, row, 0, table.shape[1], target);
    }
    default:
      return copy_row_of<float>(table, row, target);
  }
}

// The output is float32, or has the activations' dtype if the node asks for it.
Status infer_embedding(std::span<const TensorMeta> inputs, const Attrs& attrs,
                       std::vector<TensorMeta>& outputs) {
  if (inputs[0].rank != 1 || inputs[0].dtype != DType::kI32 || inputs[1].rank != 2) {
    return invalid_argument(fmt::format("embedding takes int32[T] and [V, H], got {} and {}",
                                        inputs[0].to_string(), inputs[1].to_string()));
  }
  outputs.push_back(TensorMeta(output_dtype(attrs, DType::kF32), {inputs[0][0], inputs[1][1]}));
  return {};
}

Status launch_embedding(Context& context, const LaunchArgs& args) {
  return embedding(context, {.ids = args.inputs[0], .table = args.inputs[1], .y = args.outputs[0]});
}

}  // namespace

Status embedding_cpu(CpuContext& context, const EmbeddingArgs& args) {
  const auto* ids = args.ids.as<int32_t>();
  [[maybe_unused]] const int64_t V = args.table.shape[0];
  HEDDLE_DCHECK(
      std::all_of(ids, ids + args.ids.shape[0], [V](int32_t id) { return id >= 0 && id < V; }));
  for_row_ranges(context.pool, args.ids.shape[0], args.table.shape[1],
                 [&](int64_t begin, int64_t end) {
                   for (int64_t t = begin; t < end; ++t) {
                     copy_row(args.table, ids[t], args.y.row<float>(t));
                   }
                 });
  return {};
}

std::span<const OpDef> embedding_ops() {
  static const OpDef kOps[] = {
      {.name = "embedding", .num_inputs = 2, .infer = infer_embedding, .launch = launch_embedding}};
  return kOps;
}

}  // namespace heddle::ops
