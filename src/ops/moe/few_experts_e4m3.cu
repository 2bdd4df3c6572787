// SPDX-License-Identifier: Apache-2.0
// few_experts_kernel.cuh with weights of 8-bit floats.
#include "ops/moe/few_experts_kernel.cuh"

namespace heddle::ops::few_experts {

Status run_e4m3(CudaContext& context, const FewExpertsArgs& args) {
  return run<PackedExperts<quant::Code::kE4M3>>(context, args);
}

}  // namespace heddle::ops::few_experts
