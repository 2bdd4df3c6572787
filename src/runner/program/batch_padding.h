// SPDX-License-Identifier: Apache-2.0
// BatchPadding: adds padding sequences to a step (ForwardContext::num_padding) up to a size class,
// so that few sizes occur and most steps can replay a captured one.
//
// Threading: confined to one thread. Cost: O(rows + sequences); allocates only in a step that is
// larger than any before.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/forward_context.h"
#include "ops/op_def.h"

namespace heddle::runner {

// The smallest size class that is not below `count`, which is positive. The classes are 1, 2, 4, 8,
// 12, 16, 24, 32, 48 and so on, two per octave from 8 on, so that few different sizes occur. From 8
// on a count grows by less than half.
[[nodiscard]] constexpr int64_t rounded_to_size_class(int64_t count) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  const int64_t between = power / 4 * 3;
  return power > 8 && count <= between ? between : power;
}

class BatchPadding {
 public:
  // A step in the form that ops read. Its spans refer to the argument of pad() or to memory of the
  // padding.
  struct Step {
    std::span<const int32_t> ids;
    std::span<const int32_t> positions;
    ops::ForwardContext forward;
  };

  // `step` with padding sequences, within `largest`. Returns it unchanged if its sequences do not
  // all have the same small number of rows. The padded numbers of sequences and rows depend only on
  // the step's, and the number of logit rows only on the step's. Results of pad() and pad_rows()
  // are valid until the next call.
  Step pad(const Step& step, const ops::Extents& largest);

  // `step` with one more sequence, whose rows fill the step up to a class of row counts. Returns it
  // unchanged if the step already has such a count, or `largest` has no room.
  Step pad_rows(const Step& step, const ops::Extents& largest);

 private:
  // `step` extended to `rows` rows and `sequences` sequences; each new sequence has `rows_each`
  // rows.
  Step extended(const Step& step, int64_t rows, int64_t sequences, int64_t rows_each);

  std::vector<int32_t> ids_, positions_, query_start_, context_lens_, kv_lens_, state_slots_,
      logit_rows_, tree_starts_;
  std::vector<uint64_t> tree_masks_;
};

}  // namespace heddle::runner
