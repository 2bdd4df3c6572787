// SPDX-License-Identifier: Apache-2.0
// The number formats and the file layouts. Worked examples carry the numbers of the format
// specifications they were taken from.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quant/dequantise.h"
#include "quant/file_formats.h"
#include "quant/round_to_nearest.h"
#include "quant/small_floats.h"

namespace heddle::quant {

namespace {

using ::testing::HasSubstr;

// Owns what a PackedRows points at.
struct PackedMatrix {
  explicit PackedMatrix(const UnpackedMatrix& source)
      : codes(static_cast<size_t>(source.N * source.format.code_bytes())),
        scales(static_cast<size_t>(source.N * source.format.scale_bytes())),
        zeros(source.zeros.size()) {
    rows = {.format = source.format,
            .num_rows = source.N,
            .codes = codes.data(),
            .scales = scales.data(),
            .zeros = zeros.empty() ? nullptr : zeros.data()};
    pack_rows(source, 0, source.N, rows, 0);
  }

  std::vector<std::byte> codes, scales;
  std::vector<uint8_t> zeros;
  PackedRows rows;
};

template <typename Scalar>
TensorView view_of(const std::vector<Scalar>& data, DType dtype, const Shape& shape) {
  return {data.data(), dtype, shape};
}

std::vector<uint16_t> halves(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(to_f16(value).bits);
  return bits;
}

Result<UnpackedMatrix> read(const StoredMatrix& matrix) {
  HEDDLE_ASSIGN_OR_RETURN(const RowFormat format, row_format(matrix));
  return unpack(matrix, format);
}

// One column of eight rows: a word of codes and one of zero points.
Result<UnpackedMatrix> read_awq_word(uint32_t qweight, uint32_t qzeros,
                                     const std::vector<uint16_t>& scales) {
  return read({.layout = FileLayout::kAwq,
               .N = 8,
               .K = 1,
               .codes = {&qweight, DType::kI32, {1, 1}},
               .scales = view_of(scales, DType::kF16, {1, 8}),
               .zeros = {&qzeros, DType::kI32, {1, 1}}});
}

TEST(AwqTest, WorkedExampleOfOneWord) {
  // q = 3,14,0,9,7,15,1,8 and z = 8,8,7,9,8,8,10,6, columns n = 0..7 of the file, rows of ours.
  const std::vector<uint16_t> scales =
      halves({0.01f, 0.02f, 0.01f, 0.03f, 0.01f, 0.02f, 0.05f, 0.01f});
  const auto matrix = read_awq_word(0x8f9e1703u, 0x6898a878u, scales);
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  EXPECT_EQ(matrix->codes, (std::vector<uint8_t>{3, 14, 0, 9, 7, 15, 1, 8}));
  EXPECT_EQ(matrix->zeros, (std::vector<uint8_t>{8, 8, 7, 9, 8, 8, 10, 6}));
  const PackedMatrix packed(*matrix);
  const float expected[8] = {-0.05f, 0.12f, -0.07f, 0.0f, -0.01f, 0.14f, -0.45f, 0.02f};
  for (int64_t n = 0; n < 8; ++n) {
    const float exact = static_cast<float>(matrix->codes[static_cast<size_t>(n)] -
                                           matrix->zeros[static_cast<size_t>(n)]) *
                        to_float(F16{scales[static_cast<size_t>(n)]});
    EXPECT_EQ(dequantised_element(packed.rows, n, 0), exact);
    EXPECT_NEAR(exact, expected[n], 3e-4f);  // the scales are rounded to fp16
  }
}

TEST(AwqTest, ReadingWordsInOrderWouldPermuteTheColumns) {
  // The same q as the example, stored in order as GPTQ does it along K.
  const auto matrix = read_awq_word(0x81f790e3u, 0, halves(std::vector<float>(8, 1.0f)));
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  EXPECT_NE(matrix->codes, (std::vector<uint8_t>{3, 14, 0, 9, 7, 15, 1, 8}));
}

TEST(AwqTest, UnpackingWhatWasPackedGivesItBack) {
  constexpr int64_t N = 24;
  constexpr int64_t K = 96;
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> w(static_cast<size_t>(N * K));
  for (float& value : w) value = normal(random);
  const UnpackedMatrix matrix = round_to_nearest(w.data(), N, K, Scheme::kInt4, 32);
  const AwqTensors tensors = pack_awq(matrix);
  const auto back = read({.layout = FileLayout::kAwq,
                          .N = N,
                          .K = K,
                          .codes = view_of(tensors.qweight, DType::kI32, {K, N / 8}),
                          .scales = view_of(tensors.scales, DType::kF16, {K / 32, N}),
                          .zeros = view_of(tensors.qzeros, DType::kI32, {K / 32, N / 8})});
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->codes, matrix.codes);
  EXPECT_EQ(back->zeros, matrix.zeros);
  EXPECT_EQ(back->scales, matrix.scales);
}

struct GptqCase {
  std::vector<uint32_t> qweight, qzeros;
  std::vector<uint16_t> scales;
  std::vector<int32_t> g_idx;
  StoredMatrix stored;

  // K = 8 of one word a column, N = 8, zero points all `zero` as stored.
  GptqCase(uint32_t word, uint32_t zeros, bool v1)
      : qweight(8, word), qzeros{zeros}, scales(halves(std::vector<float>(8, 0.5f))) {
    stored = {.layout = FileLayout::kGptq,
              .N = 8,
              .K = 8,
              .bits = 4,
              .zeros_less_one = v1,
              .codes = view_of(qweight, DType::kI32, {1, 8}),
              .scales = view_of(scales, DType::kF16, {1, 8}),
              .zeros = view_of(qzeros, DType::kI32, {1, 1})};
  }
};

TEST(GptqTest, WordsAreInOrderAndVersionOneStoresOneLess) {
  const GptqCase v1(0x81f790e3u, 0x77777777u, true);
  const GptqCase v2(0x81f790e3u, 0x88888888u, false);
  for (const GptqCase* each : {&v1, &v2}) {
    const auto matrix = read(each->stored);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    const PackedMatrix packed(*matrix);
    const float q[8] = {3, 14, 0, 9, 7, 15, 1, 8};
    for (int64_t k = 0; k < 8; ++k) {
      EXPECT_EQ(dequantised_element(packed.rows, 5, k), (q[k] - 8.0f) * 0.5f);
    }
  }
}

TEST(GptqTest, AStoredFifteenMeansSixteen) {
  const GptqCase wrapped(0, 0xffffffffu, true);
  const auto matrix = read(wrapped.stored);
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(matrix->zeros[0], 16);
}

TEST(GptqTest, ASymmetricFileWithTheOtherVersionsZerosIsRefused) {
  GptqCase mislabelled(0, 0x88888888u, true);
  mislabelled.stored.symmetric = true;
  EXPECT_THAT(read(mislabelled.stored).status().message(), HasSubstr("zero point"));
  GptqCase right(0, 0x77777777u, true);
  right.stored.symmetric = true;
  const auto matrix = read(right.stored);
  ASSERT_TRUE(matrix.ok());
  EXPECT_FALSE(matrix->format.has_zeros);
  EXPECT_EQ(matrix->format.constant_zero, 8);
}

TEST(GptqTest, GroupsInActivationOrderKeepTheirColumns) {
  std::vector<uint32_t> qweight(8, 0x99999999u);  // q = 9 everywhere
  const std::vector<uint32_t> qzeros = {0x77777777u, 0x66666666u};
  std::vector<float> s(16, 1.0f);
  std::fill(s.begin() + 8, s.end(), 2.0f);
  const std::vector<uint16_t> scales = halves(s);
  const std::vector<int32_t> g_idx = {1, 0, 0, 1, 1, 0, 1, 0};
  StoredMatrix stored{.layout = FileLayout::kGptq,
                      .N = 8,
                      .K = 8,
                      .bits = 4,
                      .zeros_less_one = true,
                      .codes = view_of(qweight, DType::kI32, {1, 8}),
                      .scales = view_of(scales, DType::kF16, {2, 8}),
                      .zeros = view_of(qzeros, DType::kI32, {2, 1}),
                      .group_index = view_of(g_idx, DType::kI32, {8})};
  const auto matrix = read(stored);
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  const PackedMatrix packed(*matrix);
  float row[8];
  dequantise_row(packed.rows, 3, 0, 8, row);
  for (int64_t k = 0; k < 8; ++k) {
    const float expected = g_idx[static_cast<size_t>(k)] == 0 ? (9 - 8) * 1.0f : (9 - 7) * 2.0f;
    EXPECT_EQ(row[k], expected) << k;
    EXPECT_EQ(dequantised_element(packed.rows, 3, k), expected);
  }
  const std::vector<int32_t> outside = {0, 0, 0, 0, 2, 0, 0, 0};
  stored.group_index = view_of(outside, DType::kI32, {8});
  EXPECT_THAT(row_format(stored).status().message(), HasSubstr("g_idx[4] is 2"));
}

TEST(PackQuantizedTest, WorkedExampleOfOneWord) {
  // q = -5, 6, -8, 1, -1, 7, -7, 0 is stored with an offset of 8.
  const std::vector<uint32_t> packed_word = {0x81f790e3u};
  const std::vector<uint16_t> scale = {to_bf16(0.5f).bits};
  const auto matrix = read({.layout = FileLayout::kPackQuantized,
                            .N = 1,
                            .K = 8,
                            .codes = view_of(packed_word, DType::kI32, {1, 1}),
                            .scales = view_of(scale, DType::kBf16, {1, 1})});
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  const PackedMatrix packed(*matrix);
  const float q[8] = {-5, 6, -8, 1, -1, 7, -7, 0};
  for (int64_t k = 0; k < 8; ++k) EXPECT_EQ(dequantised_element(packed.rows, 0, k), q[k] * 0.5f);
}

TEST(PackQuantizedTest, ZeroPointsArePackedAlongTheRowsAndAShortRowIsPadded) {
  // 9 rows: two words of zero points; K = 12 of words of 8.
  std::vector<uint32_t> words(18, 0x55555555u);
  const std::vector<uint32_t> zeros = {0x76543210u, 0x8u};
  const std::vector<uint16_t> scales(9, to_bf16(1.0f).bits);
  const auto matrix = read({.layout = FileLayout::kPackQuantized,
                            .N = 9,
                            .K = 12,
                            .codes = view_of(words, DType::kI32, {9, 2}),
                            .scales = view_of(scales, DType::kBf16, {9, 1}),
                            .zeros = view_of(zeros, DType::kI32, {2, 1})});
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  const PackedMatrix packed(*matrix);
  for (int64_t n = 0; n < 9; ++n) {
    EXPECT_EQ(dequantised_element(packed.rows, n, 11), 5.0f - static_cast<float>(n));
  }
}

TEST(E4M3Test, EveryCodeMeansWhatItsBitsSay) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
    EXPECT_EQ(static_cast<double>(value), code < 128 ? magnitude : -magnitude) << code;
    EXPECT_EQ(float_to_e4m3(value), code);
  }
  EXPECT_EQ(e4m3_to_float(0x7e), kE4M3Max);
}

TEST(E4M3Test, EveryBf16NumberRoundsToTheNearestCode) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float(Bf16{static_cast<uint16_t>(bits)});
    const uint8_t code = float_to_e4m3(value);
    if (std::isnan(value)) {
      EXPECT_EQ(code & 127, 127);
      continue;
    }
    const float rounded = e4m3_to_float(code);
    ASSERT_FALSE(std::isnan(rounded));
    EXPECT_EQ(std::signbit(rounded), std::signbit(value));
    if (std::fabs(value) >= kE4M3Max) {
      EXPECT_EQ(std::fabs(rounded), kE4M3Max);
      continue;
    }
    // No neighbour is nearer, and a tie goes to the even code.
    const double error = std::fabs(static_cast<double>(value) - rounded);
    for (const int step : {-1, 1}) {
      const int other = (code & 127) + step;
      if (other < 0 || other > 0x7e) continue;
      const double distance = std::fabs(std::fabs(static_cast<double>(value)) -
                                        e4m3_to_float(static_cast<uint8_t>(other)));
      ASSERT_LE(error, distance);
      if (error == distance) {
        ASSERT_EQ(code & 1, 0);
      }
    }
  }
}

TEST(Fp8Test, BlockScalesReachPartialBlocks) {
  constexpr int64_t N = 130;
  constexpr int64_t K = 200;
  const std::vector<uint8_t> codes(static_cast<size_t>(N * K), 0x38);  // 1.0
  const std::vector<float> scales = {1, 2, 3, 4};
  const auto matrix = read({.layout = FileLayout::kE4M3,
                            .N = N,
                            .K = K,
                            .codes = view_of(codes, DType::kF8E4M3, {N, K}),
                            .scales = view_of(scales, DType::kF32, {2, 2})});
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  const PackedMatrix packed(*matrix);
  EXPECT_EQ(dequantised_element(packed.rows, 127, 127), 1);
  EXPECT_EQ(dequantised_element(packed.rows, 127, 128), 2);
  EXPECT_EQ(dequantised_element(packed.rows, 128, 127), 3);
  EXPECT_EQ(dequantised_element(packed.rows, 129, 199), 4);
}

// Scales of E8M0, a byte each, as files of scale_fmt "ue8m0" have them.
TEST(Fp8Test, ScalesThatArePowersOfTwoHaveAByteEach) {
  constexpr int64_t N = 130;
  constexpr int64_t K = 200;
  const std::vector<uint8_t> codes(static_cast<size_t>(N * K), 0x38);  // 1.0
  std::vector<uint8_t> scales = {0, 127, 120, 254};
  const auto stored = [&](const Shape& shape) {
    return StoredMatrix{.layout = FileLayout::kE4M3,
                        .N = N,
                        .K = K,
                        .codes = view_of(codes, DType::kF8E4M3, {N, K}),
                        .scales = view_of(scales, DType::kU8, shape)};
  };
  const auto matrix = read(stored({2, 2}));
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  const PackedMatrix packed(*matrix);
  EXPECT_EQ(packed.rows.format.scale, ScaleType::kF32);
  EXPECT_EQ(dequantised_element(packed.rows, 127, 127), std::ldexp(1.0f, -127));
  EXPECT_EQ(dequantised_element(packed.rows, 127, 128), 1);
  EXPECT_EQ(dequantised_element(packed.rows, 128, 127), std::ldexp(1.0f, -7));
  EXPECT_EQ(dequantised_element(packed.rows, 129, 199), std::ldexp(1.0f, 127));
  scales[1] = 255;
  EXPECT_THAT(read(stored({2, 2})).status().message(),
              HasSubstr("the scale of row 0, group 1 is nan"));
  EXPECT_THAT(row_format(stored({4})).status().message(), HasSubstr("scales have shape [4]"));
  scales.assign(static_cast<size_t>(N), 128);
  const auto rows = read(stored({N, 1}));
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_EQ(dequantised_element(PackedMatrix(*rows).rows, 3, 4), 2);
  scales.assign(1, 126);
  const auto one = read(stored({}));
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(dequantised_element(PackedMatrix(*one).rows, 129, 0), 0.5f);
}

TEST(Fp8Test, OneScaleAndOneScaleARow) {
  const std::vector<uint8_t> codes(8, 0x40);  // 2.0
  const std::vector<float> scales = {3, 5};
  for (const Shape& shape : {Shape{2, 1}, Shape{2}}) {
    const auto matrix = read({.layout = FileLayout::kE4M3,
                              .N = 2,
                              .K = 4,
                              .codes = view_of(codes, DType::kF8E4M3, {2, 4}),
                              .scales = view_of(scales, DType::kF32, shape)});
    ASSERT_TRUE(matrix.ok());
    const PackedMatrix packed(*matrix);
    EXPECT_EQ(dequantised_element(packed.rows, 0, 3), 6);
    EXPECT_EQ(dequantised_element(packed.rows, 1, 0), 10);
  }
  const auto one = read({.layout = FileLayout::kE4M3,
                         .N = 2,
                         .K = 4,
                         .codes = view_of(codes, DType::kF8E4M3, {2, 4}),
                         .scales = view_of(scales, DType::kF32, {})});
  ASSERT_TRUE(one.ok());
  const PackedMatrix packed(*one);
  EXPECT_EQ(dequantised_element(packed.rows, 1, 0), 6);
}

TEST(Mxfp4Test, LowNibblesComeFirstAndScalesArePowersOfTwo) {
  std::vector<uint8_t> blocks(16, 0);
  blocks[0] = 0x72;  // elements 0 and 1: 1 and 6
  blocks[1] = 0xf8;  // -0 and -6
  const std::vector<uint8_t> scales = {126};
  const auto matrix = read({.layout = FileLayout::kMxfp4,
                            .N = 1,
                            .K = 32,
                            .codes = view_of(blocks, DType::kU8, {1, 1, 16}),
                            .scales = view_of(scales, DType::kU8, {1, 1})});
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  const PackedMatrix packed(*matrix);
  float row[32];
  dequantise_row(packed.rows, 0, 0, 32, row);
  EXPECT_EQ(row[0], 0.5f);
  EXPECT_EQ(row[1], 3.0f);
  EXPECT_EQ(row[2], 0.0f);
  EXPECT_TRUE(std::signbit(row[2]));
  EXPECT_EQ(row[3], -3.0f);
  const std::vector<uint8_t> not_a_number = {255};
  const auto bad = read({.layout = FileLayout::kMxfp4,
                         .N = 1,
                         .K = 32,
                         .codes = view_of(blocks, DType::kU8, {1, 1, 16}),
                         .scales = view_of(not_a_number, DType::kU8, {1, 1})});
  EXPECT_THAT(bad.status().message(), HasSubstr("scale of row 0, group 0 is nan"));
}

// Rows of NVFP4 codes, scales and factors as a file has them.
struct Nvfp4Case {
  int64_t N = 0;
  int64_t K = 0;
  std::vector<uint8_t> codes, scales;
  std::vector<float> factors = {1};
  bool divided = false;
  int64_t num_experts = 0;

  [[nodiscard]] StoredMatrix stored() const {
    const int64_t groups = (K + 15) / 16;
    const auto shape = [&](int64_t columns) {
      return num_experts == 0 ? Shape{N, columns} : Shape{num_experts, N / num_experts, columns};
    };
    const auto count = static_cast<int64_t>(factors.size());
    return {.layout = FileLayout::kNvfp4,
            .N = N,
            .K = K,
            .num_experts = num_experts,
            .codes = view_of(codes, DType::kU8, shape(K / 2)),
            .scales = view_of(scales, DType::kF8E4M3, shape(groups)),
            .factors = view_of(factors, DType::kF32, count == 1 ? Shape{} : Shape{count}),
            .divided = divided};
  }
};

TEST(Nvfp4Test, WorkedExampleOfOneGroup) {
  Nvfp4Case file{.N = 1, .K = 16};
  file.codes = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};  // 0, 1, 2, .. 15
  file.scales = {0x3c};                                           // 1.5
  file.factors = {0.25f};
  const float multiplied[16] = {0,     0.1875f,  0.375f,  0.5625f,  0.75f,  1.125f,  1.5f,  2.25f,
                                -0.0f, -0.1875f, -0.375f, -0.5625f, -0.75f, -1.125f, -1.5f, -2.25f};
  for (const bool divided : {false, true}) {
    file.divided = divided;
    const auto matrix = read(file.stored());
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    EXPECT_EQ(matrix->format.to_string(),
              divided ? "nvfp4, one scale a row, float8 over float32 scales"
                      : "nvfp4, one scale a row, float8 times float32 scales");
    const PackedMatrix packed(*matrix);
    EXPECT_EQ(scale_of(packed.rows, 0, 0), divided ? 6.0f : 0.375f);
    float row[16];
    dequantise_row(packed.rows, 0, 0, 16, row);
    for (size_t k = 0; k < 16; ++k) {
      EXPECT_EQ(row[k], multiplied[k] * (divided ? 16 : 1)) << k;
      EXPECT_EQ(std::signbit(row[k]), k >= 8) << k;
    }
  }
}

// All codes with all scales that are numbers; the scale of a group is rounded to fp32 once, its
// product with the code once more. Groups of any row length, the last one partial.
TEST(Nvfp4Test, EveryCodeTimesEveryScaleIsExactlyWhatTheFormatSays) {
  std::mt19937_64 random(5);
  for (const int64_t K : {2, 16, 30, 128, 136, 254, 400}) {
    for (const bool divided : {false, true}) {
      Nvfp4Case file{
          .N = 40, .K = K, .factors = {divided ? 1543.7f : 0.000317f}, .divided = divided};
      for (int64_t i = 0; i < file.N * K / 2; ++i) {
        file.codes.push_back(static_cast<uint8_t>(random()));
      }
      const int64_t groups = (K + 15) / 16;
      for (int64_t i = 0; i < file.N * groups; ++i) {
        file.scales.push_back(static_cast<uint8_t>(i % 127));
      }
      const auto matrix = read(file.stored());
      ASSERT_TRUE(matrix.ok()) << matrix.status().message();
      const PackedMatrix packed(*matrix);
      EXPECT_EQ(packed.rows.num_bytes(), file.N * ((K + 127) / 128 * 64 + (groups + 7) / 4 * 4));
      std::vector<float> row(static_cast<size_t>(K));
      for (int64_t n = 0; n < file.N; ++n) {
        dequantise_row(packed.rows, n, 0, K, row.data());
        for (int64_t k = 0; k < K; ++k) {
          const uint8_t pair = file.codes[static_cast<size_t>((n * K + k) / 2)];
          const float scale = e4m3_to_float(file.scales[static_cast<size_t>(n * groups + k / 16)]);
          const float group = divided ? scale / file.factors[0] : scale * file.factors[0];
          const float want = e2m1_to_float(k % 2 == 0 ? pair & 15 : pair >> 4) * group;
          ASSERT_EQ(row[static_cast<size_t>(k)], want) << n << ", " << k;
          ASSERT_EQ(dequantised_element(packed.rows, n, k), want) << n << ", " << k;
        }
      }
    }
  }
}

TEST(Nvfp4Test, ExpertsInOneTensorMayHaveAFactorEach) {
  Nvfp4Case file{.N = 6, .K = 32, .factors = {1, 2, 4}, .num_experts = 3};
  file.codes.assign(6 * 16, 0x22);  // 1
  file.scales.assign(6 * 2, 0x38);  // 1
  const auto matrix = read(file.stored());
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  const PackedMatrix packed(*matrix);
  for (int64_t n = 0; n < 6; ++n) {
    EXPECT_EQ(dequantised_element(packed.rows, n, 31), static_cast<float>(1 << (n / 2)));
  }
  file.factors[1] = 0;
  EXPECT_THAT(read(file.stored()).status().message(), HasSubstr("weight_scale_2[1] is 0"));
  file.factors = {1, 2};
  EXPECT_THAT(read(file.stored()).status().message(),
              HasSubstr("weight_scale_2 has shape [2], one number or one an expert is needed"));
}

TEST(Nvfp4Test, ScalesThatAreNoNumbersAreRefusedByName) {
  Nvfp4Case file{.N = 2, .K = 20};
  file.codes.assign(2 * 10, 0x77);
  file.scales = {0, 0x7e, 1, 0x7e};  // 0, 448, 2^-9
  const auto extremes = read(file.stored());
  ASSERT_TRUE(extremes.ok()) << extremes.status().message();
  const PackedMatrix packed(*extremes);
  EXPECT_EQ(dequantised_element(packed.rows, 0, 15), 0);
  EXPECT_EQ(dequantised_element(packed.rows, 0, 19), 6 * 448);
  EXPECT_EQ(dequantised_element(packed.rows, 1, 0), 6 * 0x1p-9f);
  for (const uint8_t nan : {uint8_t{0x7f}, uint8_t{0xff}}) {
    file.scales[3] = nan;
    EXPECT_THAT(read(file.stored()).status().message(),
                ::testing::ContainsRegex("the scale of row 1, group 1 is -?nan"));
  }
  file.scales[3] = 0x7e;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const bool divided : {false, true}) {
    file.divided = divided;
    const char* const name = divided ? "weight_global_scale" : "weight_scale_2";
    for (const float bad : {0.0f, -1.0f, kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      file.factors = {bad};
      EXPECT_THAT(
          read(file.stored()).status().message(),
          HasSubstr(fmt::format("{} is {}, a positive finite number is needed", name, bad)));
    }
    file.factors = {divided ? 1e-38f : 3e38f};
    EXPECT_THAT(read(file.stored()).status().message(),
                HasSubstr("the scale of row 0, group 1 is inf"));
  }
}

TEST(Nvfp4Test, ShapesAndTypesThatDisagreeNameTheTensor) {
  const auto message = [](const StoredMatrix& stored) {
    return row_format(stored).status().message();
  };
  Nvfp4Case file{.N = 2, .K = 32};
  file.codes.assign(2 * 16, 0);
  file.scales.assign(2 * 4, 0);
  const StoredMatrix good = file.stored();
  EXPECT_TRUE(row_format(good).ok());
  StoredMatrix bad = good;
  bad.K = 31;
  EXPECT_THAT(message(bad), HasSubstr("31 columns do not pack into bytes of two"));
  bad = good;
  bad.codes.shape = {2, 32};
  EXPECT_THAT(message(bad), HasSubstr("weight has shape [2, 32], [2, 16] is needed"));
  bad = good;
  bad.scales.shape = {2, 1};
  EXPECT_THAT(message(bad), HasSubstr("weight_scale has shape [2, 1], [2, 2] is needed"));
  bad = good;
  bad.scales.dtype = DType::kU8;
  EXPECT_THAT(message(bad), HasSubstr("weight_scale is uint8, float8_e4m3 is needed"));
  bad = good;
  bad.factors.dtype = DType::kBf16;
  EXPECT_THAT(message(bad), HasSubstr("weight_scale_2 is bfloat16, float32 is needed"));
  bad = good;
  bad.factors.shape = {2};
  EXPECT_THAT(message(bad), HasSubstr("weight_scale_2 has shape [2], one number is needed"));
  bad = good;
  bad.input_major = true;
  EXPECT_THAT(message(bad), HasSubstr("rows are stored as columns"));
}

// The experts of a layer in one tensor, whose rows may be stored as columns; blocks begin anew in
// each.
TEST(Fp8Test, ExpertsInOneTensorHaveScalesOfTheirOwn) {
  constexpr int64_t E = 3, R = 20, K = 24;
  std::mt19937_64 random(6);
  const auto code_of = [](int64_t e, int64_t r, int64_t k) {
    return static_cast<uint8_t>(0x30 + (e * 7 + r * 3 + k) % 16);
  };
  for (const bool input_major : {false, true}) {
    for (const Shape& grid : {Shape{E, 3, 2}, Shape{E, R, 1}, Shape{E, 1, 1}, Shape{E}, Shape{}}) {
      SCOPED_TRACE(fmt::format("{}, {}", grid.to_string(), input_major));
      std::vector<uint8_t> codes(static_cast<size_t>(E * R * K));
      for (int64_t i = 0; i < E * R * K; ++i) {
        const int64_t e = i / (R * K), in_matrix = i % (R * K);
        codes[static_cast<size_t>(i)] = input_major ? code_of(e, in_matrix % R, in_matrix / R)
                                                    : code_of(e, in_matrix / K, in_matrix % K);
      }
      const bool cut = grid.rank() == 3;
      std::vector<float> scales(static_cast<size_t>(grid.num_elements()));
      for (float& scale : scales) scale = static_cast<float>(random() % 100 + 1) / 64;
      const Shape stored = cut && input_major ? Shape{E, grid[2], grid[1]} : grid;
      const auto matrix = read(
          {.layout = FileLayout::kE4M3,
           .N = E * R,
           .K = K,
           .num_experts = E,
           .input_major = input_major,
           .block_rows = 8,
           .block_columns = 16,
           .codes = view_of(codes, DType::kF8E4M3, input_major ? Shape{E, K, R} : Shape{E, R, K}),
           .scales = view_of(scales, DType::kF32, stored)});
      ASSERT_TRUE(matrix.ok()) << matrix.status().message();
      const bool blocks = cut && grid[1] == 3;
      EXPECT_EQ(matrix->format.block_rows, blocks ? 4 : 1) << "that divide 8 and 20";
      const PackedMatrix packed(*matrix);
      for (int64_t n = 0; n < E * R; ++n) {
        const int64_t e = n / R, r = n % R;
        for (int64_t k = 0; k < K; ++k) {
          int64_t index = grid.rank() == 0 ? 0 : e;
          if (cut) {
            const int64_t row = blocks ? r / 8 : grid[1] == R ? r : 0, column = blocks ? k / 16 : 0;
            index = e * grid[1] * grid[2] +
                    (input_major ? column * grid[1] + row : row * grid[2] + column);
          }
          ASSERT_EQ(dequantised_element(packed.rows, n, k),
                    e4m3_to_float(code_of(e, r, k)) * scales[static_cast<size_t>(index)])
              << n << ", " << k;
        }
      }
    }
  }
}

TEST(FileFormatsTest, NanScalesAndNanWeightsAreRefused) {
  std::vector<uint8_t> codes(8, 0);
  std::vector<float> scales = {1, std::numeric_limits<float>::quiet_NaN()};
  StoredMatrix stored{.layout = FileLayout::kE4M3,
                      .N = 2,
                      .K = 4,
                      .codes = view_of(codes, DType::kF8E4M3, {2, 4}),
                      .scales = view_of(scales, DType::kF32, {2, 1})};
  EXPECT_THAT(read(stored).status().message(), HasSubstr("scale of row 1, group 0 is nan"));
  scales[1] = 1;
  codes[6] = 0xff;
  EXPECT_THAT(read(stored).status().message(), HasSubstr("weight[1, 2] is not a number"));
}

TEST(FileFormatsTest, ShapesThatDisagreeNameTheTensor) {
  const std::vector<uint32_t> words(64);
  const std::vector<uint16_t> scales(64);
  StoredMatrix stored{.layout = FileLayout::kAwq,
                      .N = 8,
                      .K = 32,
                      .codes = view_of(words, DType::kI32, {16, 1}),
                      .scales = view_of(scales, DType::kF16, {1, 8}),
                      .zeros = view_of(words, DType::kI32, {1, 1})};
  EXPECT_THAT(row_format(stored).status().message(),
              HasSubstr("qweight has shape [16, 1], [32, 1] is needed"));
  stored.codes = view_of(words, DType::kI32, {32, 1});
  stored.scales = view_of(scales, DType::kF16, {3, 8});
  stored.zeros = view_of(words, DType::kI32, {3, 1});
  EXPECT_THAT(row_format(stored).status().message(),
              HasSubstr("group size does not divide the width: 32 columns in 3 groups"));
  stored.layout = FileLayout::kGptq;
  stored.bits = 3;
  EXPECT_THAT(row_format(stored).status().message(), HasSubstr("4 and 8 are served"));
}

// Every code path of dequantise_row against the definition, with tails.
TEST(DequantiseTest, RowsEqualElements) {
  std::mt19937_64 random(7);
  for (const Scheme scheme : {Scheme::kInt4, Scheme::kInt8, Scheme::kFp8, Scheme::kFp8Block}) {
    for (const int64_t K : {32, 96, 128, 224, 416}) {
      std::normal_distribution<float> normal(0, 0.05f);
      std::vector<float> w(static_cast<size_t>(5 * K));
      for (float& value : w) value = normal(random);
      const PackedMatrix packed(round_to_nearest(w.data(), 5, K, scheme, 32));
      std::vector<float> row(static_cast<size_t>(K));
      for (int64_t n = 0; n < 5; ++n) {
        dequantise_row(packed.rows, n, 0, K, row.data());
        for (int64_t k = 0; k < K; ++k) {
          ASSERT_EQ(row[static_cast<size_t>(k)], dequantised_element(packed.rows, n, k))
              << fmt::format("scheme {}, K {}, [{}, {}]", static_cast<int>(scheme), K, n, k);
        }
        if (K > 128) {
          dequantise_row(packed.rows, n, 128, K - 128, row.data());
          ASSERT_EQ(row[0], dequantised_element(packed.rows, n, 128));
        }
      }
    }
  }
}

TEST(RoundToNearestTest, ErrorsStayWithinHalfAStep) {
  constexpr int64_t N = 140;
  constexpr int64_t K = 160;
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> w(static_cast<size_t>(N * K));
  for (float& value : w) value = normal(random);
  std::fill_n(w.begin(), K, 0.0f);                                       // a row of zeros
  for (int64_t k = 0; k < K; ++k) w[static_cast<size_t>(K + k)] = 0.3f;  // and one of one sign
  for (const Scheme scheme : {Scheme::kInt4, Scheme::kInt8, Scheme::kFp8, Scheme::kFp8Block}) {
    const PackedMatrix packed(round_to_nearest(w.data(), N, K, scheme, 32));
    const RowFormat& format = packed.rows.format;
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < K; ++k) {
        const float value = w[static_cast<size_t>(n * K + k)];
        const float scale = scale_of(packed.rows, n, format.group_of(k));
        // A float's step is 1/8 of its power of two at most; 2^-9 near zero. Integers: the zero
        // point may be off by half a step, too, and the scale is rounded to fp16.
        const float half_step = scheme == Scheme::kInt4 ? 1.01f * scale
                                : scheme == Scheme::kInt8
                                    ? 0.5001f * scale
                                    : std::fabs(value) / 15.9f + scale * 0x1p-10f;
        ASSERT_NEAR(dequantised_element(packed.rows, n, k), value, half_step + 1e-30f)
            << static_cast<int>(scheme);
      }
    }
  }
}

TEST(RoundToNearestTest, Mxfp4TakesTheNearestOfItsNumbersAndAPowerOfTwo) {
  for (int i = -700; i <= 700; ++i) {
    const float value = static_cast<float>(i) / 100;
    const float got = e2m1_to_float(float_to_e2m1(value));
    for (uint8_t code = 0; code < 16; ++code) {
      EXPECT_LE(std::fabs(got - value), std::fabs(e2m1_to_float(code) - value)) << value;
    }
  }
  EXPECT_EQ(float_to_e2m1(2.5f), 4) << "ties to the even code";
  EXPECT_EQ(float_to_e2m1(-5.0f), 8 | 6);
  EXPECT_EQ(float_to_e2m1(1e9f), 7);
  std::vector<float> w(64);
  for (size_t i = 0; i < 64; ++i)
    w[i] = (i < 32 ? 0.01f : 700.0f) * (static_cast<float>(i % 7) - 3);
  w[40] = 0;
  const UnpackedMatrix matrix = round_to_nearest(w.data(), 1, 64, Scheme::kMxfp4, 0);
  EXPECT_EQ(matrix.scales[0], std::byte{127 - 8}) << "0.03 is 7.68 of 2^-8";
  EXPECT_EQ(matrix.scales[1], std::byte{127 + 9}) << "2,100 is 4.1 of 2^9";
  EXPECT_EQ(matrix.codes[40], 0);
  const std::vector<float> nothing(32);
  const UnpackedMatrix zeros = round_to_nearest(nothing.data(), 1, 32, Scheme::kMxfp4, 0);
  EXPECT_EQ(zeros.codes, std::vector<uint8_t>(32));
}

TEST(PackedRows, RowsOfABlockShareOneRowOfScales) {
  constexpr int64_t kN = 300, kK = 200;
  std::vector<float> w(kN * kK);
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  for (float& value : w) value = normal(random);
  const UnpackedMatrix matrix = round_to_nearest(w.data(), kN, kK, Scheme::kFp8Block, 0);
  EXPECT_EQ(matrix.format.block_rows, 128);
  const auto pack = [&](PackedRows rows, std::vector<std::byte>& codes,
                        std::vector<std::byte>& scales) {
    rows.format = matrix.format;
    rows.num_rows = kN;
    codes.resize(static_cast<size_t>(kN * rows.format.code_bytes()));
    scales.resize(static_cast<size_t>(rows.num_scale_rows() * rows.format.scale_bytes()));
    rows.codes = codes.data();
    rows.scales = scales.data();
    pack_rows(matrix, 0, kN, rows, 0);
    return rows;
  };
  std::vector<std::byte> codes, scales, same_codes, fewer_scales;
  const PackedRows each = pack({}, codes, scales);
  const PackedRows shared = pack({.rows_per_scale = 128}, same_codes, fewer_scales);
  EXPECT_EQ(scales.size(), 300u * 2 * 4);
  EXPECT_EQ(fewer_scales.size(), 3u * 2 * 4);
  EXPECT_EQ(shared.num_bytes(), kN * 256 + 24);
  for (int64_t n = 0; n < kN; ++n) {
    for (int64_t k = 0; k < kK; ++k) {
      ASSERT_EQ(dequantised_element(shared, n, k), dequantised_element(each, n, k)) << n;
    }
  }
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 300}, {127, 2}, {130, 170}}) {
    const PackedRows cut = shared.cut(first, count).cut(1, count - 1);
    EXPECT_EQ(cut.num_scale_rows(), (first + count - 1) / 128 - (first + 1) / 128 + 1);
    for (int64_t n = 0; n < count - 1; ++n) {
      ASSERT_EQ(dequantised_element(cut, n, 7), dequantised_element(each, first + 1 + n, 7));
    }
  }
}

}  // namespace
}  // namespace heddle::quant
