// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/segment_attention.h"

#include <fmt/format.h>

#include "core/shape_contract.h"

namespace heddle::ops {

namespace {

// Checks that the segments cover all rows in order, without gaps or overlaps.
Status check_segments(const TensorView& segments) {
  const int64_t num_rows = segments.shape[0];
  for (int64_t first = 0; first < num_rows;) {
    const int32_t* const bounds = segments.row<int32_t>(first);
    const int64_t end = bounds[1];
    for (int64_t row = first; row == first || row < end; ++row) {
      const bool is_there = bounds[0] == first && end > first && end <= num_rows;
      const int32_t* const own = segments.row<int32_t>(is_there ? row : first);
      if (is_there && own[0] == first && own[1] == end) continue;
      return invalid_argument(
          fmt::format("segment_attention: row {} of {} has the segment from {} to {}, which does "
                      "not follow the segment before it",
                      row, num_rows, own[0], own[1]));
    }
    first = end;
  }
  return {};
}

}  // namespace

Status segment_attention(Context& context, const SegmentAttentionArgs& args) {
  Dim S{"S"}, W{"N*D"}, two{"2", 2};
  ShapeContract contract("segment_attention");
  contract.expect("q", args.q, {&S, &W}, activations(context))
      .expect("k", args.k, {&S, &W}, args.q.dtype)
      .expect("v", args.v, {&S, &W}, args.q.dtype)
      .expect("segments", args.segments, {&S, &two}, DType::kI32)
      .expect("y", args.y, {&S, &W}, args.q.dtype);
  HEDDLE_RETURN_IF_ERROR(contract.status());
  const int64_t D = args.head_dim;
  if (D <= 0 || D % 8 != 0 || W % D != 0) {
    return invalid_argument(fmt::format(
        "segment_attention: rows of {} are not heads of {}, a multiple of 8", W.value(), D));
  }
  if (context.device != DeviceKind::kCpu) {
    return unimplemented("segment_attention has no CUDA kernel; encode pictures on the CPU");
  }
  HEDDLE_RETURN_IF_ERROR(check_segments(args.segments));
  const int64_t needed = segment_attention_workspace_bytes(context, S, D);
  if (std::ssize(args.workspace) < needed) {
    return invalid_argument(fmt::format("segment_attention: the workspace has {} bytes, {} needed",
                                        args.workspace.size(), needed));
  }
  return segment_attention_cpu(static_cast<CpuContext&>(context), args);
}

}  // namespace heddle::ops
