// SPDX-License-Identifier: Apache-2.0
#include "quant/file_formats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "core/check.h"
#include "quant/dequantise.h"
#include "quant/small_floats.h"

namespace heddle::quant {

namespace {

// index of the nibble that contains column n of eight
constexpr int kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

uint32_t word_at(const TensorView& tensor, int64_t index) {
  uint32_t word;
  std::memcpy(&word, tensor.as<std::byte>() + 4 * index, sizeof(word));
  return word;
}

Status expect_shape(const char* name, const TensorView& tensor, const Shape& shape) {
  if (tensor.shape == shape) return ok_status();
  return invalid_argument(fmt::format("{} has shape {}, {} is needed", name,
                                      tensor.shape.to_string(), shape.to_string()));
}

Status expect_dtype(const char* name, const TensorView& tensor, DType dtype) {
  if (tensor.dtype == dtype) return ok_status();
  return invalid_argument(
      fmt::format("{} is {}, {} is needed", name, to_string(tensor.dtype), to_string(dtype)));
}

Result<ScaleType> scale_type(const TensorView& scales) {
  switch (scales.dtype) {
    case DType::kF32:
      return ScaleType::kF32;
    case DType::kBf16:
      return ScaleType::kBf16;
    case DType::kF16:
      return ScaleType::kF16;
    default:
      return invalid_argument(fmt::format("scales are {}, float32, bfloat16 or float16 is needed",
                                          to_string(scales.dtype)));
  }
}

// The size of equal groups along K, by their number.
Result<int64_t> group_size_of(int64_t K, int64_t num_groups) {
  if (num_groups < 1 || K % num_groups != 0) {
    return invalid_argument(fmt::format(
        "the group size does not divide the width: {} columns in {} groups", K, num_groups));
  }
  return K / num_groups;
}

// The group of every column; none if the groups are consecutive.
Result<std::shared_ptr<const std::vector<int32_t>>> read_group_index(const TensorView& tensor,
                                                                     int64_t K,
                                                                     int64_t num_groups) {
  std::shared_ptr<const std::vector<int32_t>> none;
  if (tensor.data == nullptr) return none;
  HEDDLE_RETURN_IF_ERROR(expect_shape("g_idx", tensor, {K}));
  HEDDLE_RETURN_IF_ERROR(expect_dtype("g_idx", tensor, DType::kI32));
  auto index = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(K));
  std::memcpy(index->data(), tensor.data, static_cast<size_t>(4 * K));
  bool consecutive = K % num_groups == 0;
  for (int64_t k = 0; k < K; ++k) {
    const int32_t group = (*index)[static_cast<size_t>(k)];
    if (group < 0 || group >= num_groups) {
      return invalid_argument(
          fmt::format("g_idx[{}] is {}, there are {} groups of scales", k, group, num_groups));
    }
    consecutive = consecutive && group == k / (K / num_groups);
  }
  if (consecutive) return none;
  return std::shared_ptr<const std::vector<int32_t>>(std::move(index));
}

Result<RowFormat> awq_format(const StoredMatrix& m) {
  if (m.N % 8 != 0) {
    return invalid_argument(fmt::format("{} rows do not pack into words of eight", m.N));
  }
  HEDDLE_RETURN_IF_ERROR(expect_dtype("qweight", m.codes, DType::kI32));
  HEDDLE_RETURN_IF_ERROR(expect_shape("qweight", m.codes, {m.K, m.N / 8}));
  const int64_t groups = m.scales.shape.rank() == 2 ? m.scales.shape[0] : 0;
  HEDDLE_RETURN_IF_ERROR(expect_shape("scales", m.scales, {groups, m.N}));
  HEDDLE_RETURN_IF_ERROR(expect_dtype("qzeros", m.zeros, DType::kI32));
  HEDDLE_RETURN_IF_ERROR(expect_shape("qzeros", m.zeros, {groups, m.N / 8}));
  RowFormat format{.code = Code::kU4, .K = m.K, .has_zeros = true};
  HEDDLE_ASSIGN_OR_RETURN(format.group_size, group_size_of(m.K, groups));
  HEDDLE_ASSIGN_OR_RETURN(format.scale, scale_type(m.scales));
  return format;
}

// Sets the scale type and the columns that share a scale: by g_idx or, without it, a number of
// consecutive columns.
Status read_groups(const char* name, const StoredMatrix& m, int64_t groups, RowFormat& format) {
  HEDDLE_ASSIGN_OR_RETURN(format.scale, scale_type(m.scales));
  if (groups < 1) return invalid_argument(fmt::format("{} has no groups", name));
  HEDDLE_ASSIGN_OR_RETURN(format.group_index, read_group_index(m.group_index, m.K, groups));
  if (format.group_index == nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(format.group_size, group_size_of(m.K, groups));
  } else {
    format.num_indexed_groups = groups;
    format.group_size = ceil_div(m.K, groups);
  }
  return {};
}

Result<RowFormat> gptq_format(const StoredMatrix& m) {
  const int64_t per_word = 32 / m.bits;
  if (m.K % per_word != 0 || m.N % per_word != 0) {
    return invalid_argument(
        fmt::format("[{}, {}] does not pack into words of {}", m.N, m.K, per_word));
  }
  HEDDLE_RETURN_IF_ERROR(expect_dtype("qweight", m.codes, DType::kI32));
  HEDDLE_RETURN_IF_ERROR(expect_shape("qweight", m.codes, {m.K / per_word, m.N}));
  const int64_t groups = m.scales.shape.rank() == 2 ? m.scales.shape[0] : 0;
  HEDDLE_RETURN_IF_ERROR(expect_shape("scales", m.scales, {groups, m.N}));
  HEDDLE_RETURN_IF_ERROR(expect_dtype("qzeros", m.zeros, DType::kI32));
  HEDDLE_RETURN_IF_ERROR(expect_shape("qzeros", m.zeros, {groups, m.N / per_word}));
  RowFormat format{.code = m.bits == 4 ? Code::kU4 : Code::kU8, .K = m.K};
  format.has_zeros = !m.symmetric;
  format.constant_zero = m.symmetric ? static_cast<uint8_t>(1 << (m.bits - 1)) : 0;
  HEDDLE_RETURN_IF_ERROR(read_groups("scales", m, groups, format));
  return format;
}

Result<RowFormat> pack_quantized_format(const StoredMatrix& m) {
  const int64_t per_word = 32 / m.bits;
  HEDDLE_RETURN_IF_ERROR(expect_dtype("weight_packed", m.codes, DType::kI32));
  HEDDLE_RETURN_IF_ERROR(expect_shape("weight_packed", m.codes, {m.N, ceil_div(m.K, per_word)}));
  const int64_t groups = m.scales.shape.rank() == 2 ? m.scales.shape[1] : 0;
  HEDDLE_RETURN_IF_ERROR(expect_shape("weight_scale", m.scales, {m.N, groups}));
  RowFormat format{.code = m.bits == 4 ? Code::kU4 : Code::kU8, .K = m.K};
  format.has_zeros = m.zeros.data != nullptr;
  format.constant_zero = format.has_zeros ? 0 : static_cast<uint8_t>(1 << (m.bits - 1));
  if (format.has_zeros) {
    HEDDLE_RETURN_IF_ERROR(expect_dtype("weight_zero_point", m.zeros, DType::kI32));
    HEDDLE_RETURN_IF_ERROR(
        expect_shape("weight_zero_point", m.zeros, {ceil_div(m.N, per_word), groups}));
  }
  HEDDLE_RETURN_IF_ERROR(read_groups("weight_scale", m, groups, format));
  return format;
}

const char* name_of_factors(const StoredMatrix& m) {
  return m.divided ? "weight_global_scale" : "weight_scale_2";
}

int64_t num_matrices(const StoredMatrix& m) { return std::max<int64_t>(1, m.num_experts); }

int64_t rows_of_matrix(const StoredMatrix& m) { return m.N / num_matrices(m); }

// The shape of a tensor that has `rows` x `columns` elements for each matrix.
Shape stored_shape(const StoredMatrix& m, int64_t rows, int64_t columns) {
  if (m.num_experts == 0) return {rows, columns};
  if (m.input_major) return {m.num_experts, columns, rows};
  return {m.num_experts, rows, columns};
}

// The layout of the scales of kE4M3 and kInt8: a grid for each matrix, or one number for all
// matrices.
struct ScaleGrid {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t rows_each = 1;  // rows of a matrix that use the same row of the grid
  bool of_all = false;
  bool of_blocks = false;
};

std::optional<ScaleGrid> scale_grid(const StoredMatrix& m) {
  const Shape& shape = m.scales.shape;
  const int64_t E = m.num_experts;
  const int64_t R = rows_of_matrix(m);
  if (shape.num_elements() == 1 && shape.rank() <= 1) {
    return ScaleGrid{.rows_each = R, .of_all = true};
  }
  if (shape == stored_shape(m, R, 1) || (E == 0 ? shape == Shape{R} : shape == Shape{E, R})) {
    return ScaleGrid{.rows = R};
  }
  if (E > 0 && (shape == Shape{E} || shape == Shape{E, 1} || shape == Shape{E, 1, 1})) {
    return ScaleGrid{.rows_each = R};
  }
  const ScaleGrid blocks{.rows = ceil_div(R, m.block_rows),
                         .columns = ceil_div(m.K, m.block_columns),
                         .rows_each = m.block_rows,
                         .of_blocks = true};
  const bool may_have_blocks = m.layout == FileLayout::kE4M3;
  if (may_have_blocks && shape == stored_shape(m, blocks.rows, blocks.columns)) return blocks;
  return std::nullopt;
}

Result<RowFormat> byte_format(const StoredMatrix& m) {
  const bool floats = m.layout == FileLayout::kE4M3;
  HEDDLE_RETURN_IF_ERROR(expect_dtype("weight", m.codes, floats ? DType::kF8E4M3 : DType::kI8));
  const int64_t R = rows_of_matrix(m);
  HEDDLE_RETURN_IF_ERROR(expect_shape("weight", m.codes, stored_shape(m, R, m.K)));
  RowFormat format{.code = floats ? Code::kE4M3 : Code::kU8,
                   .K = m.K,
                   .group_size = m.K,
                   .constant_zero = floats ? uint8_t{0} : uint8_t{128}};
  const bool exponents = floats && m.scales.dtype == DType::kU8;
  if (!exponents) {  // E8M0 becomes fp32 when it is unpacked
    HEDDLE_ASSIGN_OR_RETURN(format.scale, scale_type(m.scales));
  }
  const std::optional<ScaleGrid> grid = scale_grid(m);
  if (!grid) {
    const Shape blocks = stored_shape(m, ceil_div(R, m.block_rows), ceil_div(m.K, m.block_columns));
    return invalid_argument(fmt::format(
        "scales have shape {}; a weight of {} takes one number, {}{}", m.scales.shape.to_string(),
        m.codes.shape.to_string(), stored_shape(m, R, 1).to_string(),
        floats ? fmt::format(" or {}", blocks.to_string()) : ""));
  }
  if (grid->of_blocks) {
    format.group_size = m.block_columns;
    // A block must not extend from one expert's matrix to the next.
    format.block_rows = m.num_experts > 1 ? std::gcd(m.block_rows, R) : m.block_rows;
  }
  return format;
}

Result<RowFormat> mxfp4_format(const StoredMatrix& m) {
  HEDDLE_RETURN_IF_ERROR(expect_dtype("blocks", m.codes, DType::kU8));
  HEDDLE_RETURN_IF_ERROR(expect_dtype("scales", m.scales, DType::kU8));
  const auto fits = [&](const TensorView& tensor, int64_t width) {
    const Shape& shape = tensor.shape;
    return shape.num_elements() == m.N * width;
  };
  if (m.K % 32 != 0 || !fits(m.codes, m.K / 2) || !fits(m.scales, m.K / 32)) {
    return invalid_argument(
        fmt::format("blocks {} and scales {} do not hold {} rows of {} columns in blocks of 32",
                    m.codes.shape.to_string(), m.scales.shape.to_string(), m.N, m.K));
  }
  return RowFormat{.code = Code::kE2M1, .scale = ScaleType::kE8M0, .K = m.K, .group_size = 32};
}

Result<RowFormat> nvfp4_format(const StoredMatrix& m) {
  constexpr int64_t kGroup = 16;
  if (m.input_major) {
    return unimplemented("NVFP4 whose rows are stored as columns is not served");
  }
  if (m.K % 2 != 0) {
    return invalid_argument(fmt::format("{} columns do not pack into bytes of two", m.K));
  }
  const int64_t R = rows_of_matrix(m);
  HEDDLE_RETURN_IF_ERROR(expect_dtype("weight", m.codes, DType::kU8));
  HEDDLE_RETURN_IF_ERROR(expect_shape("weight", m.codes, stored_shape(m, R, m.K / 2)));
  HEDDLE_RETURN_IF_ERROR(expect_dtype("weight_scale", m.scales, DType::kF8E4M3));
  HEDDLE_RETURN_IF_ERROR(
      expect_shape("weight_scale", m.scales, stored_shape(m, R, ceil_div(m.K, kGroup))));
  const char* const name = name_of_factors(m);
  HEDDLE_RETURN_IF_ERROR(expect_dtype(name, m.factors, DType::kF32));
  if (m.factors.shape.num_elements() != 1 && m.factors.shape.num_elements() != num_matrices(m)) {
    return invalid_argument(fmt::format("{} has shape {}, one number{} is needed", name,
                                        m.factors.shape.to_string(),
                                        m.num_experts > 1 ? " or one an expert" : ""));
  }
  return RowFormat{.code = Code::kE2M1,
                   .scale = m.divided ? ScaleType::kE4M3Over : ScaleType::kE4M3Times,
                   .K = m.K,
                   .group_size = kGroup};
}

Result<RowFormat> block_format(const StoredMatrix& m) {
  const int64_t columns = size_of(m.blocks.type).columns;
  const std::optional<RowFormat> format = packed_format(m.blocks.type, m.K, m.on_gpu);
  if (m.blocks.K == m.K && m.K % columns == 0 && format) return *format;
  return invalid_argument(fmt::format("rows of {} columns in blocks of {} do not make rows of {}",
                                      m.blocks.K, columns, m.K));
}

// The index-th field of `bits` bits in a packed word.
uint32_t field(uint32_t word, int64_t index, int bits) {
  return (word >> (bits * index)) & ((1u << bits) - 1);
}

void allocate(UnpackedMatrix& out) {
  const RowFormat& format = out.format;
  out.codes.resize(static_cast<size_t>(out.N * format.K));
  out.scales.resize(static_cast<size_t>(out.N * format.scale_bytes()));
  if (format.has_zeros) out.zeros.resize(static_cast<size_t>(out.N * format.num_groups()));
}

// Transposes the file's scales [groups, N] to [N, groups].
void transpose_scales(const StoredMatrix& m, UnpackedMatrix& out) {
  const int64_t groups = out.format.num_groups();
  const auto width = static_cast<size_t>(bytes_of(m.scales.dtype, 1));
  const auto* from = m.scales.as<std::byte>();
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t n = 0; n < m.N; ++n) {
      std::memcpy(out.scales.data() + static_cast<size_t>(n * groups + g) * width,
                  from + static_cast<size_t>(g * m.N + n) * width, width);
    }
  }
}

void copy_scales(const StoredMatrix& m, UnpackedMatrix& out) {
  std::memcpy(out.scales.data(), m.scales.data, out.scales.size());
}

void unpack_awq(const StoredMatrix& m, UnpackedMatrix& out) {
  const int64_t words = m.N / 8;
  for (int64_t k = 0; k < m.K; ++k) {
    for (int64_t c = 0; c < words; ++c) {
      const uint32_t word = word_at(m.codes, k * words + c);
      for (int64_t i = 0; i < 8; ++i) {
        out.codes[static_cast<size_t>((8 * c + i) * m.K + k)] =
            static_cast<uint8_t>(field(word, kAwqNibble[i], 4));
      }
    }
  }
  const int64_t groups = out.format.num_groups();
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t n = 0; n < m.N; ++n) {
      out.zeros[static_cast<size_t>(n * groups + g)] =
          static_cast<uint8_t>(field(word_at(m.zeros, g * words + n / 8), kAwqNibble[n % 8], 4));
    }
  }
  transpose_scales(m, out);
}

Status unpack_gptq(const StoredMatrix& m, UnpackedMatrix& out) {
  const int64_t per_word = 32 / m.bits;
  for (int64_t r = 0; r < m.K / per_word; ++r) {
    for (int64_t n = 0; n < m.N; ++n) {
      const uint32_t word = word_at(m.codes, r * m.N + n);
      for (int64_t j = 0; j < per_word; ++j) {
        out.codes[static_cast<size_t>(n * m.K + r * per_word + j)] =
            static_cast<uint8_t>(field(word, j, m.bits));
      }
    }
  }
  transpose_scales(m, out);
  const int64_t groups = out.format.num_groups();
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t n = 0; n < m.N; ++n) {
      const uint32_t word = word_at(m.zeros, g * (m.N / per_word) + n / per_word);
      // Masked before 1 is added, as in the reference implementation: a stored 15 means 16.
      const uint32_t zero = field(word, n % per_word, m.bits) + (m.zeros_less_one ? 1u : 0u);
      if (m.symmetric && zero != out.format.constant_zero) {
        return data_loss(fmt::format(
            "the zero point of row {}, group {} is {}, a symmetric checkpoint of {} bits has {}; "
            "checkpoint_format may be wrong (gptq stores one less than gptq_v2)",
            n, g, zero, m.bits, out.format.constant_zero));
      }
      if (zero > 255) {
        return data_loss(
            fmt::format("the zero point of row {}, group {} is {}, beyond 8 bits", n, g, zero));
      }
      if (!m.symmetric) out.zeros[static_cast<size_t>(n * groups + g)] = static_cast<uint8_t>(zero);
    }
  }
  return ok_status();
}

void unpack_pack_quantized(const StoredMatrix& m, UnpackedMatrix& out) {
  const int64_t per_word = 32 / m.bits;
  const int64_t words = ceil_div(m.K, per_word);
  for (int64_t n = 0; n < m.N; ++n) {
    for (int64_t k = 0; k < m.K; ++k) {
      out.codes[static_cast<size_t>(n * m.K + k)] = static_cast<uint8_t>(
          field(word_at(m.codes, n * words + k / per_word), k % per_word, m.bits));
    }
  }
  copy_scales(m, out);
  if (!out.format.has_zeros) return;
  const int64_t groups = out.format.num_groups();
  for (int64_t n = 0; n < m.N; ++n) {
    for (int64_t g = 0; g < groups; ++g) {
      out.zeros[static_cast<size_t>(n * groups + g)] = static_cast<uint8_t>(
          field(word_at(m.zeros, n / per_word * groups + g), n % per_word, m.bits));
    }
  }
}

// Index, in the file's tensor, of the scale for row `row` of matrix `matrix` in group `group`.
int64_t scale_index(const StoredMatrix& m, const ScaleGrid& grid, int64_t matrix, int64_t row,
                    int64_t group) {
  if (grid.of_all) return 0;
  const int64_t at = row / grid.rows_each;
  return matrix * grid.rows * grid.columns +
         (m.input_major ? group * grid.rows + at : at * grid.columns + group);
}

// Transposes codes [E, K, R] to [E, R, K], in tiles of some rows and columns.
void transpose_codes(const StoredMatrix& m, std::vector<uint8_t>& codes) {
  constexpr int64_t kTile = 64;
  const int64_t R = rows_of_matrix(m);
  for (int64_t e = 0; e < num_matrices(m); ++e) {
    const uint8_t* const from = m.codes.as<uint8_t>() + e * R * m.K;
    uint8_t* const to = codes.data() + e * R * m.K;
    for (int64_t r = 0; r < R; r += kTile) {
      for (int64_t k = 0; k < m.K; ++k) {
        for (int64_t n = r; n < std::min(r + kTile, R); ++n) to[n * m.K + k] = from[k * R + n];
      }
    }
  }
}

Status unpack_bytes(const StoredMatrix& m, UnpackedMatrix& out) {
  if (m.input_major) {
    transpose_codes(m, out.codes);
  } else {
    std::memcpy(out.codes.data(), m.codes.data, out.codes.size());
  }
  if (m.layout == FileLayout::kInt8) {
    for (uint8_t& code : out.codes) code ^= 0x80;  // adds 128 to the signed code
  } else {
    for (size_t i = 0; i < out.codes.size(); ++i) {
      if ((out.codes[i] & 0x7f) != 0x7f) continue;
      const auto index = static_cast<int64_t>(i);
      return data_loss(fmt::format("weight[{}, {}] is not a number", index / m.K, index % m.K));
    }
  }
  const std::optional<ScaleGrid> grid = scale_grid(m);
  HEDDLE_CHECK(grid.has_value());  // row_format() has refused all other shapes
  const int64_t groups = out.format.num_groups();
  const int64_t R = rows_of_matrix(m);
  const bool exponents = m.scales.dtype == DType::kU8;
  const int64_t width = out.format.scale_bytes() / groups;
  const auto* const scales = m.scales.as<std::byte>();
  std::byte* to = out.scales.data();
  for (int64_t n = 0; n < m.N; ++n) {
    for (int64_t g = 0; g < groups; ++g, to += width) {
      const int64_t index = scale_index(m, *grid, n / R, n % R, g);
      if (exponents) {
        const float power = e8m0_to_float(static_cast<uint8_t>(scales[index]));
        std::memcpy(to, &power, sizeof(power));
      } else {
        std::memcpy(to, scales + index * width, static_cast<size_t>(width));
      }
    }
  }
  return ok_status();
}

void unpack_pairs(const StoredMatrix& m, UnpackedMatrix& out) {
  const auto* pairs = m.codes.as<uint8_t>();
  for (int64_t i = 0; i < m.N * m.K / 2; ++i) {
    out.codes[static_cast<size_t>(2 * i)] = pairs[i] & 15;
    out.codes[static_cast<size_t>(2 * i + 1)] = pairs[i] >> 4;
  }
}

void unpack_mxfp4(const StoredMatrix& m, UnpackedMatrix& out) {
  unpack_pairs(m, out);
  copy_scales(m, out);
}

Status unpack_nvfp4(const StoredMatrix& m, UnpackedMatrix& out) {
  unpack_pairs(m, out);
  const int64_t groups = out.format.num_groups();
  const int64_t num_factors = m.factors.shape.num_elements();
  for (int64_t n = 0; n < m.N; ++n) {
    const int64_t index = num_factors == 1 ? 0 : n / rows_of_matrix(m);
    float factor;
    std::memcpy(&factor, m.factors.as<std::byte>() + 4 * index, sizeof(factor));
    if (!(factor > 0) || !std::isfinite(factor)) {
      return data_loss(fmt::format("{}{} is {}, a positive finite number is needed",
                                   name_of_factors(m),
                                   num_factors > 1 ? fmt::format("[{}]", index) : "", factor));
    }
    std::byte* const row = out.scales.data() + n * out.format.scale_bytes();
    std::memcpy(row, &factor, sizeof(factor));
    std::memcpy(row + kFactorBytes, m.scales.as<std::byte>() + n * groups,
                static_cast<size_t>(groups));
  }
  return ok_status();
}

Status check_scales(const UnpackedMatrix& matrix) {
  PackedRows rows{.format = matrix.format, .num_rows = matrix.N};
  rows.scales = const_cast<std::byte*>(matrix.scales.data());
  for (int64_t n = 0; n < matrix.N; ++n) {
    for (int64_t g = 0; g < matrix.format.num_groups(); ++g) {
      const float scale = scale_of(rows, n, g);
      if (!std::isfinite(scale)) {
        return data_loss(fmt::format("the scale of row {}, group {} is {}", n, g, scale));
      }
      const float minimum = minimum_of(rows, n, g);
      if (!std::isfinite(minimum)) {
        return data_loss(fmt::format("the minimum of row {}, group {} is {}", n, g, minimum));
      }
    }
  }
  return ok_status();
}

}  // namespace

const char* to_string(FileLayout layout) {
  switch (layout) {
    case FileLayout::kAwq:
      return "AWQ";
    case FileLayout::kGptq:
      return "GPTQ";
    case FileLayout::kPackQuantized:
      return "compressed-tensors pack-quantized";
    case FileLayout::kE4M3:
      return "FP8";
    case FileLayout::kInt8:
      return "INT8";
    case FileLayout::kMxfp4:
      return "MXFP4";
    case FileLayout::kNvfp4:
      return "NVFP4";
    case FileLayout::kBlocks:
      return "GGUF blocks";
  }
  return "unknown";
}

Result<RowFormat> row_format(const StoredMatrix& matrix) {
  if ((matrix.layout == FileLayout::kGptq || matrix.layout == FileLayout::kPackQuantized) &&
      matrix.bits != 4 && matrix.bits != 8) {
    return unimplemented(
        fmt::format("{} with {} bits; 4 and 8 are served", to_string(matrix.layout), matrix.bits));
  }
  switch (matrix.layout) {
    case FileLayout::kAwq:
      return awq_format(matrix);
    case FileLayout::kGptq:
      return gptq_format(matrix);
    case FileLayout::kPackQuantized:
      return pack_quantized_format(matrix);
    case FileLayout::kE4M3:
    case FileLayout::kInt8:
      return byte_format(matrix);
    case FileLayout::kMxfp4:
      return mxfp4_format(matrix);
    case FileLayout::kNvfp4:
      return nvfp4_format(matrix);
    case FileLayout::kBlocks:
      return block_format(matrix);
  }
  HEDDLE_CHECK(false && "unknown layout");
}

Result<UnpackedMatrix> unpack(const StoredMatrix& matrix, const RowFormat& format) {
  UnpackedMatrix out{.format = format, .N = matrix.N};
  allocate(out);
  switch (matrix.layout) {
    case FileLayout::kAwq:
      unpack_awq(matrix, out);
      break;
    case FileLayout::kGptq:
      HEDDLE_RETURN_IF_ERROR(unpack_gptq(matrix, out));
      break;
    case FileLayout::kPackQuantized:
      unpack_pack_quantized(matrix, out);
      break;
    case FileLayout::kE4M3:
    case FileLayout::kInt8:
      HEDDLE_RETURN_IF_ERROR(unpack_bytes(matrix, out));
      break;
    case FileLayout::kMxfp4:
      unpack_mxfp4(matrix, out);
      break;
    case FileLayout::kNvfp4:
      HEDDLE_RETURN_IF_ERROR(unpack_nvfp4(matrix, out));
      break;
    case FileLayout::kBlocks:
      unpack_blocks(matrix.blocks, out);
      break;
  }
  HEDDLE_RETURN_IF_ERROR(check_scales(out));
  return out;
}

AwqTensors pack_awq(const UnpackedMatrix& matrix) {
  const RowFormat& format = matrix.format;
  HEDDLE_CHECK(format.code == Code::kU4 && format.has_zeros && format.scale == ScaleType::kF16);
  HEDDLE_CHECK_EQ(matrix.N % 8, 0);
  const int64_t N = matrix.N;
  const int64_t K = format.K;
  const int64_t groups = format.num_groups();
  AwqTensors out;
  out.qweight.resize(static_cast<size_t>(K * N / 8));
  out.qzeros.resize(static_cast<size_t>(groups * N / 8));
  out.scales.resize(static_cast<size_t>(groups * N));
  const auto put = [&](std::vector<uint32_t>& words, int64_t row, int64_t n, uint8_t value) {
    words[static_cast<size_t>(row * (N / 8) + n / 8)] |= static_cast<uint32_t>(value)
                                                         << (4 * kAwqNibble[n % 8]);
  };
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      put(out.qweight, k, n, matrix.codes[static_cast<size_t>(n * K + k)]);
    }
    for (int64_t g = 0; g < groups; ++g) {
      put(out.qzeros, g, n, matrix.zeros[static_cast<size_t>(n * groups + g)]);
      std::memcpy(&out.scales[static_cast<size_t>(g * N + n)],
                  matrix.scales.data() + 2 * (n * groups + g), 2);
    }
  }
  return out;
}

}  // namespace heddle::quant
