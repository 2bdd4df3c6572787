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
  kBits,  // bitwise or of fp32 numbers
};

// x and y [T, N] in activations(context); rows may be strided. y must not overlap x, because the
// other ranks read x until all have finished. Cost on each of R ranks: reads R T N numbers, writes
// T N, waits for all ranks. Errors: kInvalidArgument if the tensors do not match or the context has
// no ranks; those of distributed::RankGroup::meet().
Status all_reduce(Context& context, Reduction reduction, const TensorView& x,
                  const MutableTensorView& y);

// x [T, n] -> y [T, N]: x of rank r has the columns of y from r * each to (r + 1) * each - 1. The
// last ranks have fewer columns, or none, if y ends earlier. Any dtype; otherwise as all_reduce().
Status gather_columns(Context& context, const TensorView& x, int64_t each,
                      const MutableTensorView& y);

// The number of columns that x of rank `rank` has in gather_columns().
[[nodiscard]] constexpr int64_t gathered_columns(int64_t rank, int64_t each, int64_t N) {
  const int64_t left = N - rank * each;
  return left < 0 ? 0 : (left < each ? left : each);
}

}  // namespace heddle::ops
