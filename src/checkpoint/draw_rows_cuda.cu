// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/drawn_codes.h"
#include "ops/cuda/launch.cuh"

namespace heddle::checkpoint {

namespace {

struct Params {
  DrawnRows rows;
  DrawnScale scale;
  uint8_t* codes;
  uint8_t* scales;
  uint8_t* zeros;  // zero points; null if the format has none
  quant::Code code;
  bool four_bits;
  int64_t K, code_bytes;
  int64_t num_scale_bytes, num_zeros;
};

constexpr int kThreads = 256;

__device__ inline uint8_t draw_code(const Params& p, int64_t row, int64_t k) {
  if (k >= p.K) return 0;
  const int64_t index = (p.rows.first_row + row * p.rows.row_step) * p.K + k;
  const DrawKeys keys = draw_keys(p.rows.weight.key, index);
  return code_of_bell(p.code, draw_bell(keys, static_cast<uint32_t>(index)));
}

// Each thread draws one byte of codes, that is of one or two columns; the first threads also write
// a byte of the scales and a zero point. Reads no memory: the minimum time is the bytes written
// divided by the bandwidth.
__global__ void __launch_bounds__(kThreads) draw_rows_kernel(const __grid_constant__ Params p) {
  ops::wait_for_inputs();
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = first; i < p.rows.num_rows * p.code_bytes; i += stride) {
    const int64_t row = i / p.code_bytes;
    const int64_t byte = i - row * p.code_bytes;
    if (p.four_bits) {
      const int64_t k = byte / 64 * 128 + byte % 64;
      p.codes[i] = static_cast<uint8_t>(draw_code(p, row, k) | (draw_code(p, row, k + 64) << 4));
    } else {
      p.codes[i] = draw_code(p, row, byte);
    }
  }
  for (int64_t i = first; i < p.num_scale_bytes; i += stride) {
    p.scales[i] = static_cast<uint8_t>(p.scale.bits >> (i % p.scale.num_bytes * 8));
  }
  for (int64_t i = first; i < p.num_zeros; i += stride) p.zeros[i] = p.scale.zero;
}

}  // namespace

Status draw_rows_cuda(device::CudaDevice& gpu, device::CudaStream& stream, const DrawnRows& rows,
                      const quant::PackedRows& target) {
  ops::CudaContext context(gpu, stream, nullptr);
  const quant::RowFormat& format = target.format;
  const Params params{.rows = rows,
                      .scale = drawn_scale(format, rows.weight),
                      .codes = reinterpret_cast<uint8_t*>(target.codes),
                      .scales = reinterpret_cast<uint8_t*>(target.scales),
                      .zeros = target.zeros,
                      .code = format.code,
                      .four_bits = format.four_bits(),
                      .K = format.K,
                      .code_bytes = format.code_bytes(),
                      .num_scale_bytes = target.num_scale_rows() * format.scale_bytes(),
                      .num_zeros = format.has_zeros ? rows.num_rows * format.num_groups() : 0};
  return ops::launch(context, "draw_rows", draw_rows_kernel,
                     ops::grid_of(ops::ceil_div(rows.num_rows * params.code_bytes, kThreads)),
                     kThreads, params);
}

}  // namespace heddle::checkpoint
