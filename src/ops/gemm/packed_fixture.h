// SPDX-License-Identifier: Apache-2.0
// For tests of quantised weights on every device: random weights of every form that loaded ones
// have.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ops/gemm/product_fixture.h"
#include "quant/packed_rows.h"

namespace heddle::ops::testing {

// Codes that are any, scales of random signs and sizes.
struct PackedForm {
  const char* name;
  quant::Code code;
  quant::ScaleType scale = quant::ScaleType::kF32;
  int64_t group_size = 0;  // 0: one scale a row
  bool has_zeros = false;
  uint8_t constant_zero = 0;
  int64_t block_rows = 1;
  bool in_activation_order = false;
  bool has_minima = false;
};

// `on_host`: with those of GGUF's blocks that no kernel of a GPU reads.
inline std::vector<PackedForm> packed_forms(bool on_host = false) {
  using quant::Code, quant::ScaleType;
  std::vector<PackedForm> forms = {
      {"AWQ", Code::kU4, ScaleType::kF16, 32, true},
      {"AWQ in wide groups", Code::kU4, ScaleType::kBf16, 128, true},
      {"compressed-tensors, 4 bits", Code::kU4, ScaleType::kBf16, 64, false, 8},
      {"compressed-tensors in groups of 12", Code::kU4, ScaleType::kF32, 12, false, 8},
      {"GPTQ, 8 bits", Code::kU8, ScaleType::kF16, 32, true},
      {"GPTQ in activation order", Code::kU4, ScaleType::kF16, 32, true, 0, 1, true},
      {"GPTQ of 8 bits in activation order", Code::kU8, ScaleType::kF16, 64, false, 128, 1, true},
      {"INT8", Code::kU8, ScaleType::kF32, 0, false, 128},
      {"FP8, a scale a row", Code::kE4M3, ScaleType::kBf16},
      {"FP8 in blocks", Code::kE4M3, ScaleType::kF32, 128, false, 0, 128},
      {"FP8 in blocks of 16 rows", Code::kE4M3, ScaleType::kF32, 128, false, 0, 16},
      {"MXFP4", Code::kE2M1, ScaleType::kE8M0, 32},
      {"NVFP4 of ModelOpt", Code::kE2M1, ScaleType::kE4M3Times, 16},
      {"NVFP4 of compressed-tensors", Code::kE2M1, ScaleType::kE4M3Over, 16}};
  if (!on_host) return forms;
  const auto add = [&](const char* name, Code code, ScaleType scale, int64_t group_size,
                       bool has_minima) {
    const uint8_t zero = code == Code::kU8 ? 128 : 0;
    forms.push_back({name, code, scale, group_size, false, zero, 1, false, has_minima});
  };
  add("Q8_0", Code::kU8, ScaleType::kF16, 32, false);
  add("Q4_1", Code::kU4, ScaleType::kF16, 32, true);
  add("Q5_1", Code::kU8, ScaleType::kF16, 32, true);
  add("Q4_K", Code::kU4, ScaleType::kU8Times, 32, true);
  add("Q5_K", Code::kU8, ScaleType::kU8Times, 32, true);
  add("Q6_K", Code::kU8, ScaleType::kI8Times, 16, false);
  return forms;
}

// A row's factor and E4M3 scales, whose products are of the size of other formats' scales.
inline void draw_two_levels(std::mt19937_64& random, quant::ScaleType type, int64_t groups,
                            std::byte* row) {
  const float size = std::ldexp(1.0f + static_cast<float>(random() % 1024) / 1024, -12);
  const float factor = type == quant::ScaleType::kE4M3Times ? size : 1 / size;
  std::memcpy(row, &factor, sizeof(factor));
  for (int64_t g = 0; g < groups; ++g) {
    const uint64_t exponent = 8 + random() % 5, mantissa = random() % 8;
    row[quant::kFactorBytes + g] = static_cast<std::byte>(exponent << 3 | mantissa);
  }
}

// fp16 numbers of random signs for 256 columns each, and any bytes.
inline void draw_wide_scales(std::mt19937_64& random, const quant::RowFormat& format,
                             std::byte* row) {
  for (int64_t i = 0; i < format.num_wide_scales(); ++i, row += 2) {
    const float size = std::ldexp(1.0f + static_cast<float>(random() % 1024) / 1024, -14);
    const F16 wide = to_f16(random() % 2 == 0 ? size : -size);
    std::memcpy(row, &wide, sizeof(wide));
  }
  for (int64_t g = 0; g < format.num_groups(); ++g) row[g] = static_cast<std::byte>(random() & 255);
}

inline quant::UnpackedMatrix random_matrix(const PackedForm& form, int64_t N, int64_t K,
                                           uint64_t seed) {
  std::mt19937_64 random(seed);
  quant::UnpackedMatrix matrix{.format = {.code = form.code,
                                          .scale = form.scale,
                                          .K = K,
                                          .group_size = form.group_size > 0 ? form.group_size : K,
                                          .has_zeros = form.has_zeros,
                                          .constant_zero = form.constant_zero,
                                          .block_rows = form.block_rows,
                                          .has_minima = form.has_minima},
                               .N = N};
  quant::RowFormat& format = matrix.format;
  if (form.in_activation_order) {
    format.num_indexed_groups = (K + form.group_size - 1) / form.group_size;
    auto index = std::make_shared<std::vector<int32_t>>();
    for (int64_t k = 0; k < K; ++k) {
      index->push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(format.num_groups())));
    }
    format.group_index = std::move(index);
  }
  for (int64_t i = 0; i < N * K; ++i) {
    auto code = static_cast<uint8_t>(random() & (format.four_bits() ? 15 : 255));
    if (form.code == quant::Code::kE4M3 && (code & 0x7f) == 0x7f) code = 0x7e;  // no number
    matrix.codes.push_back(code);
  }
  const int64_t groups = format.num_groups();
  const int64_t num_runs = form.has_minima ? 2 : 1;  // in a row: scales, and perhaps minima
  const int64_t width = format.scale_bytes() / groups / num_runs;
  matrix.scales.resize(static_cast<size_t>(N * format.scale_bytes()));
  for (int64_t n = 0; n < N; ++n) {
    if (has_factor(form.scale)) {
      draw_two_levels(random, form.scale, groups, matrix.scales.data() + n * format.scale_bytes());
      continue;
    }
    if (has_wide_scales(form.scale)) {
      for (int64_t i = 0; i < num_runs; ++i) {
        draw_wide_scales(
            random, format,
            matrix.scales.data() + n * format.scale_bytes() + i * format.minima_begin());
      }
      continue;
    }
    for (int64_t g = 0; g < groups * num_runs; ++g) {
      std::byte* const scale = matrix.scales.data() + n * format.scale_bytes() + g * width;
      if (n % form.block_rows != 0) {
        std::memcpy(scale, scale - groups * width, static_cast<size_t>(width));
        continue;
      }
      const float value = (random() % 2 == 0 ? 1.0f : -1.0f) *
                          std::ldexp(1.0f + static_cast<float>(random() % 1024) / 1024,
                                     -8 + static_cast<int>(random() % 4));
      switch (form.scale) {
        case quant::ScaleType::kF32:
          std::memcpy(scale, &value, 4);
          break;
        case quant::ScaleType::kBf16: {
          const Bf16 narrow = to_bf16(value);
          std::memcpy(scale, &narrow, 2);
          break;
        }
        case quant::ScaleType::kF16: {
          const F16 narrow = to_f16(value);
          std::memcpy(scale, &narrow, 2);
          break;
        }
        case quant::ScaleType::kE8M0:
          *scale = static_cast<std::byte>(118 + random() % 6);
          break;
        case quant::ScaleType::kE4M3Times:
        case quant::ScaleType::kE4M3Over:
        case quant::ScaleType::kU8Times:
        case quant::ScaleType::kI8Times:
          break;
      }
    }
  }
  if (!form.has_zeros) return matrix;
  for (int64_t i = 0; i < N * groups; ++i) {
    matrix.zeros.push_back(static_cast<uint8_t>(random() % (format.four_bits() ? 17 : 256)));
  }
  return matrix;
}

}  // namespace heddle::ops::testing
