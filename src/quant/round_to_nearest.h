// SPDX-License-Identifier: Apache-2.0
// Quantises by rounding to the nearest code, without regard to activations: the simplest method,
// and the baseline for calibrated ones. For 4-bit codes it loses noticeably more accuracy than they
// do.
//
//   int4          per row and group: s = (max - min) / 15 in fp16, z = round(-min / s),
//                 q = round(w / s) + z, clamped; zero always lies between min and max
//   int8          per row: s = max|w| / 127, q = round(w / s)
//   fp8           per row: s = max|w| / 448
//   fp8 in blocks of 128 x 128: s = max|w| of the block / 448
//   mxfp4         per row and 32 columns: s = the power of two that brings max|w| into [4, 8);
//                 the upper quarter of [4, 8) becomes 6 (Open Compute Project, "Microscaling
//                 Formats", 6.3)
#pragma once

#include <cstdint>

#include "quant/packed_rows.h"

namespace heddle::quant {

enum class Scheme : uint8_t { kInt4, kInt8, kFp8, kFp8Block, kMxfp4 };

// Quantises w [N, K]. `group_size` (for kInt4), or 32 (for kMxfp4), must divide K. kFp8Block
// accepts any N and K; the last block in each direction may be partial. Cost: some nanoseconds an
// element.
[[nodiscard]] UnpackedMatrix round_to_nearest(const float* w, int64_t N, int64_t K, Scheme scheme,
                                              int64_t group_size);

// The format of the matrix that round_to_nearest() returns.
[[nodiscard]] RowFormat format_of(Scheme scheme, int64_t K, int64_t group_size);

}  // namespace heddle::quant
