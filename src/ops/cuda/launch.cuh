// SPDX-License-Identifier: Apache-2.0
// launch(): a kernel on the stream of a context, in an NVTX range of its name.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_status.h"
#include "ops/context.h"

namespace heddle::ops {

// The kernel takes one `const __grid_constant__ Params`. A grid without blocks launches nothing.
// Error: kDeviceLost, naming the kernel.
template <typename Params>
Status launch(CudaContext& context, const char* name, void (*kernel)(Params), dim3 grid, dim3 block,
              const Params& params, size_t shared_bytes = 0) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  nvtxRangePushA(name);
  kernel<<<grid, block, shared_bytes, context.stream.handle()>>>(params);
  nvtxRangePop();
  return device::launch_status(name);
}

// Lets the kernel have more shared memory than the 48 KiB that every kernel may.
template <typename Kernel>
Status allow_shared(Kernel kernel, size_t num_bytes) {
  return device::cuda_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(num_bytes)),
      "cudaFuncSetAttribute");
}

// The largest grid of dimension x is 2^31 - 1 blocks; kernels walk rows with a stride of the grid.
[[nodiscard]] inline dim3 grid_of(int64_t blocks) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  return dim3(static_cast<unsigned>(blocks < kMost ? blocks : kMost));
}

[[nodiscard]] __host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace heddle::ops
