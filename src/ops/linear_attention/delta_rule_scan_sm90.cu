// SPDX-License-Identifier: Apache-2.0
// The chunks of each sequence in order: d = T w, y = exp(Gc) r_q S' q + P d, S <- exp(Gc_last) S +
// k (...)'. A block computes a value head of a sequence, or half of its value channels; see
// delta_rule_scan_sm90.cuh, also for the cost. Halves are used if all of them can run at once, else
// whole heads. Launched after delta_rule_prepare_sm90.cu.
#include "ops/cuda/launch.cuh"
#include "ops/linear_attention/delta_rule_scan_sm90.cuh"

namespace heddle::ops::chunked {

namespace {

template <int kGroups>
__global__ void __launch_bounds__(kScanThreads<kGroups>, 1)
    scan_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  extern __shared__ __align__(1024) uint8_t raw[];
  constexpr int kComputeRegisters = kGroups == 1 ? 0 : 232;
  constexpr int kHelperRegisters = kGroups == 1 ? 0 : 40;
  scan_head<kGroups, kComputeRegisters, kHelperRegisters>(
      p, *reinterpret_cast<ScanShared<kGroups>*>(raw), static_cast<int>(blockIdx.x),
      [](int, int) {});
}

template <int kGroups>
Status launch_scan(CudaContext& context, const Params& params) {
  HEDDLE_RETURN_IF_ERROR(allow_shared(scan_kernel<kGroups>, sizeof(ScanShared<kGroups>)));
  const int64_t blocks = int64_t{params.num_scanned} * params.num_value_heads * (2 / kGroups);
  return launch(context, "gated_delta_rule_scan", scan_kernel<kGroups>, grid_of(blocks),
                kScanThreads<kGroups>, params, sizeof(ScanShared<kGroups>));
}

}  // namespace

Status scan_chunks(CudaContext& context, const Params& params) {
  // One block per half head if all fit at once, otherwise one per head.
  const int64_t halves = 2 * int64_t{params.num_scanned} * params.num_value_heads;
  return halves <= context.gpu.properties().num_multiprocessors ? launch_scan<1>(context, params)
                                                                : launch_scan<2>(context, params);
}

}  // namespace heddle::ops::chunked
