// SPDX-License-Identifier: Apache-2.0
// The rule of a seeded random weight that is quantised while it loads (`--load-format dummy` with
// `--quantization`). Codes are drawn directly, not rounded from numbers. They follow a bell curve
// over all codes of the format. One scale for the whole weight gives it the standard deviation of
// the unquantised weight. CPU and GPU draw the same bits, so a GPU draws its weights in place.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif
#include <heddle/status.h>

#include "checkpoint/drawn_weight.h"
#include "quant/packed_rows.h"
#include "quant/small_floats.h"

namespace heddle::checkpoint {

inline constexpr int32_t kMostOfBell = 2 * 65535;  // largest absolute value of draw_bell()

// The quantised value, in units of the scale, to which draw_bell()'s largest value kMostOfBell is
// mapped.
[[nodiscard]] HEDDLE_HOST_DEVICE constexpr float most_of_codes(quant::Code code) {
  switch (code) {
    case quant::Code::kU4:
      return 7.5f;
    case quant::Code::kU8:
      return 127.0f;
    case quant::Code::kE2M1:
      return 6.0f;
    default:
      return 448.0f;
  }
}

[[nodiscard]] HEDDLE_HOST_DEVICE inline uint8_t code_of_bell(quant::Code code, int32_t bell) {
  const float value = static_cast<float>(bell) * (most_of_codes(code) / kMostOfBell);
  switch (code) {
    case quant::Code::kU4: {
      const int32_t rounded = static_cast<int32_t>(rintf(value)) + 8;
      return static_cast<uint8_t>(rounded > 15 ? 15 : rounded);
    }
    case quant::Code::kU8:
      return static_cast<uint8_t>(static_cast<int32_t>(rintf(value)) + 128);
    case quant::Code::kE2M1:
      return quant::float_to_e2m1(value);
    default:
#ifdef __CUDA_ARCH__
      return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
#else
      return quant::float_to_e4m3(value);
#endif
  }
}

// Rows of a hub tensor that are drawn: row i of them is row first_row + i * row_step.
struct DrawnRows {
  DrawnWeight weight;  // its distribution has mean 0
  int64_t first_row = 0;
  int64_t row_step = 1;
  int64_t num_rows = 0;
};

// The scale that all groups share: its first `num_bytes` bytes are stored. `zero` is the zero point
// of every group.
struct DrawnScale {
  uint32_t bits = 0;
  int32_t num_bytes = 4;
  uint8_t zero = 0;
};

[[nodiscard]] DrawnScale drawn_scale(const quant::RowFormat& format, const DrawnWeight& weight);

// Draws the rows on the host. `format` is one that quant::format_of() returns.
[[nodiscard]] quant::UnpackedMatrix draw_matrix(const DrawnRows& rows,
                                                const quant::RowFormat& format);

// Enqueues drawing the same rows into `target`, which is GPU memory with rows.num_rows rows.
// Errors: kDeviceLost; kUnimplemented in a build without CUDA. Cost: two hashes a code.
Status draw_rows_cuda(device::CudaDevice& gpu, device::CudaStream& stream, const DrawnRows& rows,
                      const quant::PackedRows& target);

}  // namespace heddle::checkpoint
