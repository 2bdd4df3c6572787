// SPDX-License-Identifier: Apache-2.0
// Ops that only copy elements. Copy elision removes most of them from a program; the remaining ones
// are computed here, row by row.
//     columns     y = x[:, start : start + width]   attrs {start, width}
//     concat      y = [a | b]
//     join_rows   y[t] = [x[n t] | x[n t + 1] | ... | x[n t + n - 1]]   attrs {count} = n
//     logit_rows  y[r] = x[forward.logit_rows[r]]   the rows whose logits are wanted
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

// y[t] = x[rows[t]], or x[t] when `rows` is empty. Any dtype; rows of tensors may be strided. On
// CUDA `rows` is device memory and is not checked: if rows[t] is not a row of x, y[t] is not
// written. Error: kInvalidArgument for shapes that disagree and, on the CPU, for a row outside x.
Status copy_rows(Context& context, const TensorView& x, std::span<const int32_t> rows,
                 const MutableTensorView& y);
Status copy_rows_cuda(CudaContext& context, const TensorView& x, std::span<const int32_t> rows,
                      const MutableTensorView& y);  // shapes already checked

}  // namespace heddle::ops
