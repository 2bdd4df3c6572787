// SPDX-License-Identifier: Apache-2.0
// Where the scratch of routed_moe lies on CUDA, whose launches cannot ask how many rows an expert
// got: sizes that hold for any routing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/moe/routed_moe.h"

namespace heddle::ops {

struct MoeDeviceScratch {
  // Tokens of a pass: some dozen rows for each of 512 experts, and rows of the second product
  // (A * H floats a token) that stay below 200 MB at the widths of the 80B model.
  static constexpr int64_t kTokensAtOnce = 2048;

  // Rows of an expert that are multiplied together.
  static constexpr int64_t kTileRows = 4;

  int64_t num_tiles = 0;  // that any routing of the pass's tokens fits

  // Offsets in bytes, from a start on 16 bytes.
  int64_t experts;   // [T, A] i32
  int64_t weights;   // [T, A] f32
  int64_t counts;    // [E] i32: rows of each expert
  int64_t offsets;   // [E] i32: its first row
  int64_t row_pair;  // [T * A] i32: which (token, slot) a row is of
  int64_t tiles;     // [num_tiles] of four i32
  int64_t hidden;    // [T * A, I] as x
  int64_t down;      // [T * A, H] f32, by (token, slot)
  int64_t total = 0;

  MoeDeviceScratch(int64_t max_T, const RoutedMoeShape& shape) {
    const int64_t R = std::min(max_T, kTokensAtOnce) * shape.A;
    // The sum over experts of their rows / 4, rounded up, of which at most min(E, R) have any.
    num_tiles = (R + (kTileRows - 1) * std::min(shape.E, R)) / kTileRows;
    const auto place = [this](int64_t bytes) {
      const int64_t here = total;
      total += (bytes + 15) / 16 * 16;
      return here;
    };
    experts = place(R * 4);
    weights = place(R * 4);
    counts = place(shape.E * 4);
    offsets = place(shape.E * 4);
    row_pair = place(R * 4);
    tiles = place(num_tiles * 16);
    hidden = place(bytes_of(shape.x, R * shape.I));
    down = place(R * shape.H * 4);
    total += 16;  // alignment of the start
  }
};

}  // namespace heddle::ops
