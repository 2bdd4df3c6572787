// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/packed_rows.cuh"
#include "ops/moe/packed_experts.cuh"

namespace heddle::ops {

Status packed_expert_up(CudaContext& context, const expert_rows::ProductParams& product,
                        const TensorView& x, const quant::PackedRows& rows, int64_t num_tiles) {
  return with_packed_rows(rows, 2 * product.N, [&](const auto& weight) {
    return expert_rows::launch_up(context, product, AnyRows{x.data, x.row_stride, x.dtype}, weight,
                                  num_tiles);
  });
}

Status packed_expert_down(CudaContext& context, const expert_rows::ProductParams& product,
                          const TensorView& x, const quant::PackedRows& rows, int64_t num_tiles) {
  return with_packed_rows(rows, product.N, [&](const auto& weight) {
    return expert_rows::launch_down(context, product, AnyRows{x.data, x.row_stride, x.dtype},
                                    weight, num_tiles);
  });
}

}  // namespace heddle::ops
