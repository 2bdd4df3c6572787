// SPDX-License-Identifier: Apache-2.0
// Preparation and scan of one sequence in one kernel (docs/delta-rule.md): scanning its few heads
// alone would leave multiprocessors idle. The last 2 * Nv blocks scan, each half of a value head.
// In each of the other blocks two teams of two warpgroups prepare chunks in order and set a flag
// for each; the scanning blocks wait for it. Cost: that of both kernels, overlapped. Used for one
// sequence whose 2 * Nv half heads occupy at most half of the multiprocessors (streams_chunks()).
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/linear_attention/delta_rule_prepare_sm90.cuh"
#include "ops/linear_attention/delta_rule_scan_sm90.cuh"

namespace heddle::ops::chunked {

namespace {

constexpr int kTeams = 2;
constexpr int kStreamThreads = kTeams * kPrepareThreads;  // 128 registers in each thread
// Registers a thread in the blocks that scan.
constexpr int kComputeRegisters = 248, kHelperRegisters = 56;

// Sets a flag that lets other blocks read what this thread's team has written, also through the
// copy engine.
__device__ inline void raise(int32_t* flag) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
}

__device__ inline void await(const int32_t* flag) {
  int32_t is_raised = 0;
  while (is_raised == 0) {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(is_raised) : "l"(flag) : "memory");
  }
}

// Orders accesses of threads to global memory before those of the copy engine.
__device__ inline void fence_global_proxy() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// The last blocks scan, one for each half of a head of the sequence; the blocks before them prepare
// and wait for no other block. If the GPU is free, all of them run at once. Otherwise blocks with
// lower indices are assumed to start first, so that no block waits for one that cannot start.
// Chunks are prepared in order, and are still in the second-level cache if the scan is close
// behind.
__global__ void __launch_bounds__(kStreamThreads, 1)
    stream_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  extern __shared__ __align__(1024) uint8_t raw[];
  const int num_walking = 2 * p.num_scanned * p.num_value_heads;
  const int num_preparing = static_cast<int>(gridDim.x) - num_walking;
  const int block = static_cast<int>(blockIdx.x);
  if (block >= num_preparing) {
    const auto await_factors = [&p](int chunk, int key_head) {
      await(p.prepared + chunk * p.num_key_heads + key_head);
      fence_global_proxy();
    };
    scan_head<1, kComputeRegisters, kHelperRegisters>(p, *reinterpret_cast<ScanShared<1>*>(raw),
                                                      block - num_preparing, await_factors);
    return;
  }
  const Team team = Team::of_thread(static_cast<int>(threadIdx.x));
  PrepareShared& s = reinterpret_cast<PrepareShared*>(raw)[team.number];
  if (team.thread == 0) start_preparing(s);
  __syncthreads();
  const int num_items = p.chunk_start[*p.num_listed] * p.num_key_heads;
  uint32_t parity = 0;
  for (int item = block * kTeams + team.number; item < num_items; item += num_preparing * kTeams) {
    prepare_chunk(p, s, team, item / p.num_key_heads, item % p.num_key_heads, parity);
    parity ^= 1;
    sm90::fence_async_proxy();  // the next tiles overwrite the memory of the matrices
    fence_global_proxy();
    team.wait_for_team();
    if (team.thread == 0) raise(p.prepared + item);
  }
}

}  // namespace

// Only for one sequence: with several, the scan of the last would begin when all earlier ones are
// prepared. Measured with half of 132 multiprocessors scanning: 636 us for 32,768 tokens; 899 in
// two kernels.
bool streams_chunks(const CudaContext& context, int64_t num_sequences, int64_t num_value_heads) {
  return num_sequences == 1 && 4 * num_value_heads <= context.gpu.properties().num_multiprocessors;
}

Status stream_chunks(CudaContext& context, const Params& params) {
  constexpr size_t kBytes = std::max(kTeams * sizeof(PrepareShared), sizeof(ScanShared<1>));
  HEDDLE_RETURN_IF_ERROR(allow_shared(stream_kernel, kBytes));
  return launch(context, "gated_delta_rule_stream", stream_kernel,
                grid_of(context.gpu.properties().num_multiprocessors), kStreamThreads, params,
                kBytes);
}

}  // namespace heddle::ops::chunked
