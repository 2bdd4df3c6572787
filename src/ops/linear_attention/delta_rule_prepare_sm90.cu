// SPDX-License-Identifier: Apache-2.0
// T = (I + A)^-1 beta exp(Gc_i - Gc_j), P = Q K' exp(Gc_i - Gc_j) and the scales of one chunk.
// A block of two warpgroups prepares a chunk for all value heads of a key head; see
// delta_rule_prepare_sm90.cuh, also for the cost. Used in the chunked form, except if one sequence
// of few heads is streamed (delta_rule_stream_sm90.cu).
#include "ops/cuda/launch.cuh"
#include "ops/linear_attention/delta_rule_prepare_sm90.cuh"

namespace heddle::ops::chunked {

namespace {

// A block prepares one chunk for all value heads of one key head.
__global__ void __launch_bounds__(kPrepareThreads, 3)
    prepare_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  extern __shared__ __align__(1024) uint8_t raw[];
  PrepareShared& s = *reinterpret_cast<PrepareShared*>(raw);
  const int64_t index = blockIdx.x;
  if (index >= p.chunk_start[*p.num_listed]) return;
  if (threadIdx.x == 0) start_preparing(s);
  __syncthreads();
  const Team team = Team::of_thread(static_cast<int>(threadIdx.x));
  prepare_chunk(p, s, team, index, static_cast<int>(blockIdx.y), 0);
}

}  // namespace

Status prepare_chunks(CudaContext& context, const Params& params, int64_t num_chunks) {
  HEDDLE_RETURN_IF_ERROR(allow_shared(prepare_kernel, sizeof(PrepareShared)));
  const dim3 chunk_heads(static_cast<unsigned>(num_chunks),
                         static_cast<unsigned>(params.num_key_heads));
  return launch(context, "gated_delta_rule_prepare", prepare_kernel, chunk_heads, kPrepareThreads,
                params, sizeof(PrepareShared));
}

}  // namespace heddle::ops::chunked
