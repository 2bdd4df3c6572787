// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/copy_job.h"
#include "checkpoint/drawn_weight.h"
#include "ops/cuda/any_dtype.cuh"
#include "ops/cuda/launch.cuh"

namespace heddle::checkpoint {

namespace {

struct Params {
  uint64_t key;
  float mean;
  float scale;
  float offset;
  void* target;
  DType dtype;
  int64_t first;
  int64_t row_width;
  int64_t row_step;
  int64_t element_step;
  int64_t num_elements;
};

constexpr int kThreads = 256;

// Each thread draws one element. Reads no memory: the minimum time is the bytes written divided by
// the bandwidth.
__global__ void __launch_bounds__(kThreads) draw_kernel(const __grid_constant__ Params p) {
  ops::wait_for_inputs();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.num_elements;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t row = i / p.row_width;
    const int64_t index = p.first + row * p.row_step + (i - row * p.row_width) * p.element_step;
    const int32_t bell = draw_bell(draw_keys(p.key, index), static_cast<uint32_t>(index));
    const float value = __fadd_rn(p.mean, __fmul_rn(p.scale, static_cast<float>(bell)));
    ops::store_number(p.target, p.dtype, i, __fadd_rn(value, p.offset));
  }
}

}  // namespace

Status draw_weight_cuda(device::CudaDevice& gpu, device::CudaStream& stream,
                        const DrawnWeight& weight, const CopyJob& job, std::byte* arena) {
  ops::CudaContext context(gpu, stream, nullptr);
  const Params params{.key = weight.key,
                      .mean = weight.mean,
                      .scale = weight.deviation / kDeviationOfBell,
                      .offset = job.offset,
                      .target = arena + job.target_byte,
                      .dtype = job.dtype,
                      .first = job.first,
                      .row_width = job.row_width,
                      .row_step = job.row_step,
                      .element_step = job.element_step,
                      .num_elements = job.num_rows * job.row_width};
  return ops::launch(context, "draw_weight", draw_kernel,
                     ops::grid_of(ops::ceil_div(params.num_elements, kThreads)), kThreads, params);
}

}  // namespace heddle::checkpoint
