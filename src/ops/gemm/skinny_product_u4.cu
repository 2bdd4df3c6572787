// SPDX-License-Identifier: Apache-2.0
// Products of few rows with weights of 4-bit integers (skinny_kernel.cuh).
#include "ops/gemm/skinny_kernel.cuh"

namespace heddle::ops::skinny {

Status launch_u4(CudaContext& context, Prologue prologue, const Params& params) {
  return launch_rows<Codes<quant::Code::kU4>>(context, prologue, params);
}

}  // namespace heddle::ops::skinny
