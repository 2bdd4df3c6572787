// SPDX-License-Identifier: Apache-2.0
// Prepare and scan of one sequence in one kernel (docs/delta-rule.md): its heads alone would leave
// multiprocessors idle.
// The last 2 * Nv blocks scan, each half a value head; two teams of two warpgroups in each of the
// others prepare chunks in order, and raise a flag for each, which the scanning blocks await.
// Costs: those of the two forms, overlapped. Taken for one sequence whose 2 * Nv half heads occupy
// at most half of the multiprocessors (streams_chunks()).
#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/linear_attention/delta_rule_prepare_sm90.cuh"
#include "ops/linear_attention/delta_rule_scan_sm90.cuh"

namespace heddle::ops::chunked {

namespace {

constexpr int kTeams = 2;
constexpr int kStreamThreads = kTeams * kPrepareThreads;       // 128 registers each
constexpr int kComputeRegisters = 248, kHelperRegisters = 56;  // registers in the blocks that scan

// Lets other blocks read what this thread's team has written, through the copy engine, too.
__device__ inline void raise(int32_t* flag) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
}

__device__ inline void await(const int32_t* flag) {
  int32_t is_raised = 0;
  while (is_raised == 0) {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(is_raised) : "l"(flag) : "memory");
  }
}

// Between what threads and what the copy engine do with global memory.
__device__ inline void fence_global_proxy() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// The last blocks walk, one each for half a head of the sequence; those before them prepare, and
// wait for no other block. All run at once where the GPU is free; where it is not, blocks of lower
// numbers are taken to start first, so that none waits for one that cannot start. Chunks are
// prepared in order, and found in the second-level cache where the walk is close behind.
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
    sm90::fence_async_proxy();  // the next tiles take the matrices' place
    fence_global_proxy();
    team.wait_for_team();
    if (team.thread == 0) raise(p.prepared + item);
  }
}

}  // namespace

// With several sequences, the scan of the last would begin when all those before are prepared.
// Measured with half of 132 multiprocessors scanning: 636 us for 32,768 tokens; 899 in two kernels.
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
