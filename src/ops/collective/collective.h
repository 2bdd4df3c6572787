// SPDX-License-Identifier: Apache-2.0
// Collectives: ops in which all ranks of a group take part (distributed/rank_group.h), each with a
// tensor of its own. All ranks get the same bits.
//     all_reduce       y = x_0 + x_1 + ... + x_(R-1)     in fp32, in the order of the ranks, then
//                                                        rounded to the dtype of x
//     all_reduce_bits  y = x_0 | x_1 | ... | x_(R-1)     where every element is +0 on all ranks but
//                                                        one: that one's bits, NaN and -0 included
//     gather_columns   y = [x_0 | x_1 | ... | x_(R-1)]
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

enum class Reduction : uint8_t {
  kSum,
  kBits,  // of fp32
};

// x and y [T, N], activations(context), whose rows may be strided. y must not overlap x: the other
// ranks read x until all have returned. Cost: R T N numbers read, T N written; waits for all ranks.
// Errors: kInvalidArgument where the tensors disagree or the context has no ranks; that of
// distributed::RankGroup::meet().
Status all_reduce(Context& context, Reduction reduction, const TensorView& x,
                  const MutableTensorView& y);

// x [T, n] -> y [T, N]: rank r has `each` columns from r * each on, the last ranks fewer where N
// has no more. As all_reduce(), but of any dtype.
Status gather_columns(Context& context, const TensorView& x, int64_t each,
                      const MutableTensorView& y);

// The columns of rank `rank`.
[[nodiscard]] constexpr int64_t gathered_columns(int64_t rank, int64_t each, int64_t N) {
  const int64_t left = N - rank * each;
  return left < 0 ? 0 : (left < each ? left : each);
}

}  // namespace heddle::ops
