// SPDX-License-Identifier: Apache-2.0
// BatchPadding: steps get further sequences, which are padding (ForwardContext::num_padding), up to
// a size class: few sizes occur, so that a captured step serves for most.
//
// Threading: confined. Cost: O(rows + sequences); allocates only where a step is larger than any
// before.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/forward_context.h"
#include "ops/op_def.h"

namespace heddle::runner {

// Sizes that a count is rounded up to, so that few different ones occur: 1, 2, 4, 8, 12, 16, 24,
// 32, 48 and so on, two to an octave from 8 on. From there on a count grows by less than half.
// Returns the smallest of these sizes that is not below `count`, which is positive.
[[nodiscard]] constexpr int64_t rounded_to_size_class(int64_t count) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  const int64_t between = power / 4 * 3;
  return power > 8 && count <= between ? between : power;
}

class BatchPadding {
 public:
  // A step as ops take it. Its spans are those of the argument, or memory of the padding.
  struct Step {
    std::span<const int32_t> ids;
    std::span<const int32_t> positions;
    ops::ForwardContext forward;
  };

  // `step` with padding, within `largest`; as it is where sequences have more than few rows, or not
  // all as many. Sequences and rows depend on nothing else than theirs, wanted logits on nothing
  // else than theirs. The results of both are valid until the next call.
  Step pad(const Step& step, const ops::Extents& largest);

  // `step` with one more sequence, which has all rows up to a class of numbers of rows; as it is
  // where it fills one, or `largest` has no room.
  Step pad_rows(const Step& step, const ops::Extents& largest);

 private:
  // With `rows` and `sequences`, each new one of `rows_each`.
  Step extended(const Step& step, int64_t rows, int64_t sequences, int64_t rows_each);

  std::vector<int32_t> ids_, positions_, query_start_, context_lens_, kv_lens_, state_slots_,
      logit_rows_, tree_starts_;
  std::vector<uint64_t> tree_masks_;
};

}  // namespace heddle::runner
