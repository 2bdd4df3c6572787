// SPDX-License-Identifier: Apache-2.0
// launch(): launches a kernel on the CUDA stream of a context, in an NVTX range of its name; with
// grids, clusters and shared memory. wait_for_inputs(): every kernel calls it before it reads what
// other kernels have written (programmatic dependent launch). fetch_ahead(): prefetches into the
// second-level cache. The host thread that enqueues the step calls launch(); each thread of a
// kernel calls the others.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_status.h"
#include "ops/context.h"

namespace heddle::ops {

// Waits until the previous kernel in the CUDA stream is complete. From compute capability 9.0 on, a
// kernel's blocks start while the previous kernel still runs (programmatic dependent launch, CUDA
// C++ Programming Guide). Before this wait, code may read weights, and what kernels before the
// previous one wrote: those are complete, because kernels let the next one start only after their
// own wait. There are two exceptions. The first product of few experts writes and fences the choice
// of experts before it lets the second product start, which reads the choice before its wait.
// rotate_append lets attention start before its own wait; before its wait, attention reads only
// what bring_batch wrote, and an embedding, a norm and a product run between the two.
// and a product lie between.
__device__ inline void await_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel's blocks start once all blocks of this one have called it.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Prefetches kBytes at a 16-byte aligned address into the second-level cache. Does nothing before
// compute capability 9.0.
template <int kBytes>
__device__ inline void fetch_ahead(const void* from) {
  static_assert(kBytes % 16 == 0);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "n"(kBytes) : "memory");
#endif
}

// Every kernel calls this function, or its two parts separately, before it reads what other kernels
// may have written. A test checks that each kernel has the part that waits: a kernel without it
// could end early, and the next kernel would then no longer wait for the previous one.
__device__ inline void wait_for_inputs() {
  await_kernel_before();
  let_next_kernel_start();
}

// Launches a kernel with one parameter of type `const __grid_constant__ Params`. A grid without
// blocks launches nothing. `cluster` is the number of blocks neighbouring in x that run together,
// from compute capability 9.0 on. Error: kDeviceLost, naming the kernel.
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

// Allows a kernel more dynamic shared memory than the 48 KiB that every kernel may use.
template <typename Kernel>
Status allow_shared(Kernel kernel, size_t num_bytes) {
  return device::cuda_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(num_bytes)),
      "cudaFuncSetAttribute");
}

// For a kernel with many loads in flight, of which `blocks` blocks with `shared_bytes` each run on
// a multiprocessor. Loads in flight need room in the first-level cache, which an earlier kernel may
// have configured as shared memory; this requests a smaller shared memory. Measured on an H200: the
// first product of 16 tokens' experts after a kernel with 132 KB took 213 us without it and 159
// with it. If the blocks need more than a quarter of the memory, nothing is requested.
template <typename Kernel>
Status prefer_cache(const CudaContext& context, Kernel kernel, int64_t blocks,
                    int64_t shared_bytes) {
  constexpr int kPercentShared = 25;
  const int64_t quarter = context.gpu.properties().shared_bytes * kPercentShared / 100;
  // Each block also has up to 2 KiB of static and reserved shared memory.
  const bool fits = blocks * (shared_bytes + 2048) <= quarter;
  return device::cuda_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                           fits ? kPercentShared : cudaSharedmemCarveoutDefault),
      "cudaFuncSetAttribute");
}

// A grid may have at most 2^31 - 1 blocks in x; kernels loop over rows with the grid's size as
// stride.
[[nodiscard]] inline dim3 grid_of(int64_t blocks) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  return dim3(static_cast<unsigned>(blocks < kMost ? blocks : kMost));
}

[[nodiscard]] __host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace heddle::ops
