// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/linear.h"
#include "ops/gemm/product_tasks.h"

namespace heddle::ops {

Status linear_cpu(CpuContext& context, const LinearArgs& args) {
  const ProductOptions options = product_options(context.exact);
  Product product{.x = args.x.as<float>(),
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
  if (args.weight.packed == nullptr) {
    multiply(context.pool, product, options, args.workspace);
    return ok_status();
  }
  for (const quant::PackedWeight::Part& part : args.weight.packed->parts) {
    Product rows = product;  // of the weight: columns of y
    rows.y += part.first_row;
    if (rows.bias != nullptr) rows.bias += part.first_row;
    rows.N = part.num_rows;
    if (part.plain.data != nullptr) {
      rows.weight = part.plain.data;
      rows.weight_stride = part.plain.row_stride;
      rows.weight_dtype = part.plain.dtype;
    } else {
      rows.packed = &part.packed;
    }
    multiply(context.pool, rows, options, args.workspace);
  }
  return ok_status();
}

}  // namespace heddle::ops
