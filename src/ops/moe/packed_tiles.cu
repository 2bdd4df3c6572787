// SPDX-License-Identifier: Apache-2.0
// The launchers of packed_tiles.cuh, which describes formula, division of work and cost.
#include "ops/moe/packed_tiles_kernel.cuh"

namespace heddle::ops::packed_tiles {

namespace {

Status multiply(CudaContext& context, bool up, const expert_rows::ProductParams& product,
                const TensorView& x, const TensorView& weight, int64_t num_tiles) {
  const quant::PackedRows& rows = weight.packed->parts[0].packed;
  const Params params{
      .product = product,
      .weight = skinny::source_of(rows),
      .x = x.as<CudaBf16>(),
      .x_stride = x.row_stride,
      .num_tiles = static_cast<int>(ceil_div(product.N, up ? kGateColumns : kTile))};
  switch (rows.format.code) {
    case quant::Code::kU4:
      return launch_u4(context, up, params, num_tiles);
    case quant::Code::kU8:
      return launch_u8(context, up, params, num_tiles);
    case quant::Code::kE2M1:
      return launch_e2m1(context, up, params, num_tiles);
    default:
      return launch_e4m3(context, up, params, num_tiles);
  }
}

}  // namespace

bool fit(const CudaContext& context, const TensorView& weight) {
  if (context.exact || weight.packed == nullptr || weight.packed->parts.size() != 1) return false;
  const quant::PackedRows& rows = weight.packed->parts[0].packed;
  return rows.codes != nullptr &&
         (skinny::reads(rows.format) || skinny::reads_mxfp4(rows.format)) &&
         shared_bytes(rows.format.K) <= skinny::most_bytes_of_x(context);
}

Status multiply_up(CudaContext& context, const expert_rows::ProductParams& product,
                   const TensorView& x, const TensorView& weight, int64_t num_tiles) {
  return multiply(context, true, product, x, weight, num_tiles);
}

Status multiply_down(CudaContext& context, const expert_rows::ProductParams& product,
                     const TensorView& x, const TensorView& weight, int64_t num_tiles) {
  return multiply(context, false, product, x, weight, num_tiles);
}

}  // namespace heddle::ops::packed_tiles
