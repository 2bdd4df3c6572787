// SPDX-License-Identifier: Apache-2.0
#include "ops/sampling/sample_rows.h"

#include "core/shape_contract.h"
#include "ops/sampling/row_scratch.h"
#include "ops/sampling/token_weight.h"

namespace heddle::ops {

int64_t sample_rows_workspace_bytes(int64_t num_rows, int64_t vocab_size) {
  return num_rows * RowScratch::bytes(vocab_size);
}

DrawKind draw_kind(const SamplingSlot& slot) {
  if (slot.top_logprobs >= 0) return DrawKind::kAny;
  if (slot.greedy != 0) return DrawKind::kBest;
  return slot.top_k >= 1 && slot.top_k <= kFewTokens ? DrawKind::kFew : DrawKind::kAny;
}

Status sample_rows(Context& context, const SampleRowsArgs& args) {
  Dim R{"R"}, V{"V"};
  ShapeContract contract("sample_rows");
  contract.expect("logits", args.logits, {&R, &V}, DType::kF32);
  HEDDLE_RETURN_IF_ERROR(contract.status());
  const int64_t rows = args.logits.shape[0];
  const int64_t vocab_size = args.logits.shape[1];
  const auto workspace_bytes = static_cast<int64_t>(args.workspace.size());
  const int64_t needed = sample_rows_workspace_bytes(rows, vocab_size);
  contract.require(vocab_size >= 1 && vocab_size < (int64_t{1} << (64 - kWeightBits)), "V",
                   static_cast<double>(vocab_size), "be from 1 to 2^20 - 1");
  contract.require(workspace_bytes >= needed, "workspace", static_cast<double>(workspace_bytes),
                   "have the bytes of sample_rows_workspace_bytes()");
  contract.require(
      rows == 0 || (args.rows != nullptr && args.slots != nullptr && args.sampled != nullptr),
      "rows, slots and sampled", static_cast<double>(rows), "have memory");
  HEDDLE_RETURN_IF_ERROR(contract.status());
  return HEDDLE_DISPATCH_DEVICE(context, sample_rows, args);
}

}  // namespace heddle::ops
