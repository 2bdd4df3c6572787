// SPDX-License-Identifier: Apache-2.0
// packed_tiles_kernel.cuh with weights of MXFP4.
#include "ops/moe/packed_tiles_kernel.cuh"

namespace heddle::ops::packed_tiles {

Status launch_e2m1(CudaContext& context, bool up, const Params& params, int64_t num_tiles) {
  return launch_columns<skinny::Codes<quant::Code::kE2M1>>(context, up, params, num_tiles);
}

}  // namespace heddle::ops::packed_tiles
