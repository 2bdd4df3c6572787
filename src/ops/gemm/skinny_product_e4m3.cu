// SPDX-License-Identifier: Apache-2.0
// Products of few rows with weights of 8-bit floats (skinny_kernel.cuh).
#include "ops/gemm/skinny_kernel.cuh"

namespace heddle::ops::skinny {

Status launch_e4m3(CudaContext& context, Prologue prologue, const Params& params) {
  return launch_rows<Codes<quant::Code::kE4M3>>(context, prologue, params);
}

}  // namespace heddle::ops::skinny
