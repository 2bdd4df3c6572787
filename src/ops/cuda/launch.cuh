// SPDX-License-Identifier: Apache-2.0
// launch(): a kernel on the stream of a context, in an NVTX range of its name; grids, clusters and
// shared memory. wait_for_inputs(): what every kernel calls before it reads what others have
// written (programmatic dependent launch). fetch_ahead(): a prefetch into the second-level cache.
// launch() is called by the host thread that enqueues the step, the others by each thread of a
// kernel.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_status.h"
#include "ops/context.h"

namespace heddle::ops {

// From compute capability 9.0 on a kernel's blocks start while the kernel before it in the stream
// still runs (programmatic dependent launch, CUDA C++ Programming Guide). Here they wait until that
// one is complete. Code ahead of the wait may read weights, and output of kernels before the one
// before it: those are complete then, because kernels let others start after their own wait. Two do
// otherwise: the second product of few experts reads which these are, which the first one has
// written and fenced before it lets the next start; and rotate_append lets attention start before
// it waits itself, which ahead of its wait reads only what bring_batch wrote: an embedding, a norm
// and a product lie between.
__device__ inline void await_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The blocks of the next kernel may start when all blocks of this one have called it.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Asks for kBytes at an address aligned to 16 bytes in the second-level cache, ahead of a read.
// Nothing happens before compute capability 9.0.
template <int kBytes>
__device__ inline void fetch_ahead(const void* from) {
  static_assert(kBytes % 16 == 0);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "n"(kBytes) : "memory");
#endif
}

// Every kernel calls it before it reads what other kernels may have written, or both of its parts.
// A test wants the part that waits: a kernel without it would end early, and the next one would no
// longer wait for the kernel before it.
__device__ inline void wait_for_inputs() {
  await_kernel_before();
  let_next_kernel_start();
}

// The kernel takes one `const __grid_constant__ Params`. A grid without blocks launches nothing.
// `cluster`: neighbouring blocks of x that run together, from compute capability 9.0 on.
// Error: kDeviceLost, naming the kernel.
template <typename Params>
Status launch(CudaContext& context, const char* name, void (*kernel)(Params), dim3 grid, dim3 block,
              const Params& params, size_t shared_bytes = 0, unsigned cluster = 1) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  cudaLaunchAttribute attributes[2] = {};
  unsigned num_attributes = 0;
  if (context.gpu.properties().kernels_start_early) {
    cudaLaunchAttribute& early = attributes[num_attributes++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& together = attributes[num_attributes++];
    together.id = cudaLaunchAttributeClusterDimension;
    together.val.clusterDim = {.x = cluster, .y = 1, .z = 1};
  }
  const cudaLaunchConfig_t config{.gridDim = grid,
                                  .blockDim = block,
                                  .dynamicSmemBytes = shared_bytes,
                                  .stream = context.stream.handle(),
                                  .attrs = attributes,
                                  .numAttrs = num_attributes};
  nvtxRangePushA(name);
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, params);
  nvtxRangePop();
  return device::cuda_status(error, name);
}

// Lets the kernel have more shared memory than the 48 KiB that every kernel may.
template <typename Kernel>
Status allow_shared(Kernel kernel, size_t num_bytes) {
  return device::cuda_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(num_bytes)),
      "cudaFuncSetAttribute");
}

// For a kernel with many loads in flight, of which `blocks` of `shared_bytes` run on a processor:
// its loads take room in the first-level cache, which kernels before it may have left to shared
// memory. Measured: the first product of 16 tokens' experts behind a kernel with 132 KB took 213 us
// on an H200, 159 like this. Where the blocks need more of it than a quarter, nothing is asked for.
template <typename Kernel>
Status prefer_cache(const CudaContext& context, Kernel kernel, int64_t blocks,
                    int64_t shared_bytes) {
  constexpr int kPercentShared = 25;
  const int64_t quarter = context.gpu.properties().shared_bytes * kPercentShared / 100;
  // 2 KiB for static and reserved memory.
  const bool fits = blocks * (shared_bytes + 2048) <= quarter;
  return device::cuda_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                           fits ? kPercentShared : cudaSharedmemCarveoutDefault),
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
