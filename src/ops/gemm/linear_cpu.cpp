// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/linear.h"
#include "ops/gemm/product_tasks.h"

namespace heddle::ops {

Status linear_cpu(CpuContext& context, const LinearArgs& args) {
  const Product product{.x = args.x.as<float>(),
                        .x_stride = args.x.row_stride,
                        .weight = args.weight.data,
                        .weight_stride = args.weight.row_stride,
                        .weight_dtype = args.weight.dtype,
                        .bias = args.bias.as<float>(),
                        .y = args.y.as<float>(),
                        .y_stride = args.y.row_stride,
                        .T = args.x.shape[0],
                        .K = args.x.shape[1],
                        .N = args.weight.shape[0]};
  multiply(context.pool, product, product_options(context.exact), args.workspace);
  return ok_status();
}

}  // namespace heddle::ops
