// SPDX-License-Identifier: Apache-2.0
// few_experts_kernel.cuh with weights of 4-bit integers.
#include "ops/moe/few_experts_kernel.cuh"

namespace heddle::ops::few_experts {

Status run_u4(CudaContext& context, const FewExpertsArgs& args) {
  return run<PackedExperts<quant::Code::kU4>>(context, args);
}

}  // namespace heddle::ops::few_experts
