// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_load.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/convert.h"
#include "checkpoint/copy_job.h"
#include "checkpoint/readable.h"
#include "core/check.h"
#include "quant/columns.h"
#include "quant/dequantise.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kAlignment = 64;  // bytes; the kernels load whole cache lines

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

const quant::RowFormat* packed_format(const PackedLoad::Origin& origin) {
  return origin.packed ? &*origin.packed : nullptr;
}

bool same_part(const PackedLoad::Origin& a, const PackedLoad::Origin& b) {
  const quant::RowFormat* const format = packed_format(a);
  const quant::RowFormat* const other = packed_format(b);
  if (format == nullptr || other == nullptr) {
    return format == other && a.plain_dtype == b.plain_dtype;
  }
  return format->same_layout(*other);
}

std::string to_string(const PackedLoad::Origin& origin) {
  const quant::RowFormat* const format = packed_format(origin);
  return fmt::format(
      "{} is {}", readable(origin.piece->tensor.name),
      format != nullptr ? format->to_string() : heddle::to_string(origin.plain_dtype));
}

bool has_activation_order(const PackedLoad::Origin& origin) {
  const quant::RowFormat* const format = packed_format(origin);
  return format != nullptr && format->group_index != nullptr;
}

Status stored_differently(const PackedLoad::Origin& a, const PackedLoad::Origin& b) {
  const bool orders = has_activation_order(a) && has_activation_order(b);
  return unimplemented(fmt::format(
      "{}, but {}; the experts of a layer are served quantised alike: quantise {}", to_string(a),
      to_string(b),
      orders ? "them without activation order (desc_act false)" : "all or none of them"));
}

// How many rows of K columns a job processes at once: a multiple of the rows that share scales.
int64_t rows_at_once(int64_t K, int64_t rows_per_scale) {
  const int64_t runs = kCopyJobElements / (std::max<int64_t>(K, 1) * rows_per_scale);
  return std::max<int64_t>(1, runs) * rows_per_scale;
}

// The same piece with only these rows, as one run that begins at row 0.
HubPiece rows_of(const HubPiece& piece, int64_t source_row, int64_t source_step, int64_t num_rows,
                 int64_t target_row) {
  HubPiece part{.tensor = piece.tensor, .form = piece.form, .columns = piece.columns};
  part.runs = {{.source_row = source_row,
                .target_row = target_row,
                .num_rows = num_rows,
                .source_step = source_step}};
  return part;
}

}  // namespace

Result<PackedLoad> PackedLoad::plan(const WeightSpec& spec, std::vector<Origin> origins,
                                    const Rounding& rounding) {
  PackedLoad load;
  load.origins_ = std::move(origins);
  load.rounding_ = rounding;
  load.weight_ = std::make_unique<quant::PackedWeight>();

  std::vector<std::pair<RowRun, size_t>> runs;  // each run with the index of its origin
  for (size_t i = 0; i < load.origins_.size(); ++i) {
    Origin& origin = load.origins_[i];
    const std::optional<CutRange>& columns = origin.piece->columns;
    origin.packed = origin.module ? std::optional(origin.module->format) : origin.rounded;
    if (columns && origin.packed) {
      origin.packed = quant::columns_of(*origin.packed, columns->first, columns->count);
    }
    HEDDLE_CHECK(origin.piece->form != RowForm::kElement);
    for (const RowRun& run : origin.piece->runs) {
      if (run.num_rows > 0) runs.emplace_back(run, i);
    }
    if (row_width(*origin.piece) > quant::kMaxPackedWidth) {
      return unimplemented(fmt::format("{}: a quantised row of {} columns; {} are served",
                                       readable(origin.piece->tensor.name),
                                       row_width(*origin.piece), quant::kMaxPackedWidth));
    }
  }
  std::ranges::sort(runs, {}, [](const auto& entry) { return entry.first.target_row; });

  std::vector<quant::PackedWeight::Part>& parts = load.weight_->parts;
  std::vector<Rows> all;
  for (const auto& [run, index] : runs) {
    const Origin& origin = load.origins_[index];
    if (all.empty() || !same_part(load.origins_[all.back().origin], origin)) {
      if (!all.empty() && spec.packing == Packing::kAlike) {
        return stored_differently(load.origins_[all.back().origin], origin);
      }
      parts.push_back({.first_row = run.target_row});
      if (const quant::RowFormat* const format = packed_format(origin)) {
        parts.back().packed.format = *format;
      } else {
        parts.back().plain.dtype = origin.plain_dtype;
      }
    }
    all.push_back({.origin = index,
                   .part = parts.size() - 1,
                   .source_row = run.source_row,
                   .source_step = run.source_step,
                   .part_row = parts.back().num_rows,
                   .num_rows = run.num_rows,
                   .rows_before = run.rows_before,
                   .rows_after = run.rows_after});
    parts.back().num_rows += run.num_rows;
  }
  const int64_t K = spec.shape[spec.shape.rank() - 1];
  for (quant::PackedWeight::Part& part : parts) {
    if (part.packed.format.K > 0) {
      part.packed.num_rows = part.num_rows;
    } else {
      part.plain = TensorView(nullptr, part.plain.dtype, {part.num_rows, K});
    }
  }
  load.share_scales(all);
  load.make_jobs(all);
  return load;
}

// The position of the first row within its block of rows that share scales.
int64_t PackedLoad::row_in_block(const Rows& rows) const {
  const Origin& origin = origins_[rows.origin];
  const int64_t row = origin.rounded ? rows.rows_before : rows.source_row;
  return row % origin.packed->block_rows;
}

// Neighbouring rows of a block share one set of scales in the part. The number of rows per scale is
// the largest that divides the block and every distance at which runs of rows begin. The first run
// may begin inside a block.
void PackedLoad::share_scales(const std::vector<Rows>& all) {
  for (const Rows& rows : all) {
    quant::PackedRows& part = weight_->parts[rows.part].packed;
    if (part.format.K == 0) continue;
    int64_t& num = part.rows_per_scale;
    if (rows.part_row == 0) {
      num = part.format.block_rows;
      part.first_scale_rows = row_in_block(rows);
    } else {
      num = std::gcd(std::gcd(num, part.first_scale_rows + rows.part_row), row_in_block(rows));
    }
    if (rows.source_step != 1) num = 1;
  }
  for (quant::PackedWeight::Part& part : weight_->parts) {
    part.packed.first_scale_rows %= part.packed.rows_per_scale;
  }
}

// A quantised tensor is unpacked once, so all its rows are one job. A plain one is read a few rows
// at a time, so its rows are several jobs.
void PackedLoad::make_jobs(const std::vector<Rows>& all) {
  for (size_t index = 0; index < origins_.size(); ++index) {
    const Origin& origin = origins_[index];
    const int64_t K = stored_row_width(*origin.piece);
    Job whole{.origin = index};
    for (const Rows& rows : all) {
      if (rows.origin != index) continue;
      if (origin.module) {
        whole.rows.push_back(rows);
        whole.bytes += rows.num_rows * origin.packed->row_bytes();
        continue;
      }
      const int64_t row_bytes = origin.packed
                                    ? origin.packed->row_bytes()
                                    : bytes_of(origin.plain_dtype, row_width(*origin.piece));
      const int64_t at_once = rows_at_once(K, origin.packed ? origin.packed->block_rows : 1);
      for (int64_t done = 0; done < rows.num_rows;) {
        Rows part = rows;
        part.source_row += done * rows.source_step;
        part.part_row += done;
        part.rows_before += done;
        // A job stops at the end of a block of rows, so that the next job begins with one.
        const int64_t wanted = origin.packed ? at_once - row_in_block(part) : at_once;
        part.num_rows = std::min(wanted, rows.num_rows - done);
        done += part.num_rows;
        part.rows_after += rows.num_rows - done;
        jobs_.push_back({.origin = index, .rows = {part}, .bytes = part.num_rows * row_bytes});
      }
    }
    if (!whole.rows.empty()) jobs_.push_back(std::move(whole));
  }
}

int64_t PackedLoad::place(int64_t begin, bool on_device) {
  const auto take = [&begin](int64_t num_bytes) {
    const int64_t here = begin;
    begin += aligned(num_bytes);
    return here;
  };
  for (const quant::PackedWeight::Part& part : weight_->parts) {
    const quant::RowFormat& format = part.packed.format;
    if (format.K == 0) {
      places_.push_back({.codes = take(part.plain.num_bytes())});
      continue;
    }
    PartPlace place{.codes = take(part.num_rows * format.code_bytes())};
    place.scales = take(part.packed.num_scale_rows() * format.scale_bytes());
    if (format.has_zeros) place.zeros = take(part.num_rows * format.num_groups());
    if (on_device && format.group_index != nullptr) {
      place.group_index = take(bytes_of(DType::kI32, format.K));
    }
    places_.push_back(place);
  }
  return begin;
}

void PackedLoad::bind(std::byte* arena, bool may_round_x, bool on_gpu) {
  weight_->on_gpu = on_gpu;
  for (size_t i = 0; i < weight_->parts.size(); ++i) {
    quant::PackedWeight::Part& part = weight_->parts[i];
    const PartPlace& place = places_[i];
    if (part.packed.format.K == 0) {
      part.plain.data = arena + place.codes;
      continue;
    }
    quant::PackedRows& rows = part.packed;
    rows.may_round_x = may_round_x;
    rows.codes = arena + place.codes;
    rows.scales = arena + place.scales;
    if (rows.format.has_zeros) rows.zeros = reinterpret_cast<uint8_t*>(arena + place.zeros);
    if (place.group_index >= 0) {
      rows.gpu_group_index = reinterpret_cast<const int32_t*>(arena + place.group_index);
    }
  }
}

Status PackedLoad::run_job(size_t index, const WeightSource& source) const {
  const Job& job = jobs_[index];
  const Origin& origin = origins_[job.origin];
  if (origin.module) return unpack_rows(job).with_context(readable(origin.piece->tensor.name));
  if (origin.rounded) {
    round_rows(job, source);
  } else {
    copy_rows(job, source);
  }
  return ok_status();
}

Result<quant::UnpackedMatrix> PackedLoad::unpack(const Origin& origin) const {
  const std::optional<CutRange>& columns = origin.piece->columns;
  Result<quant::UnpackedMatrix> matrix =
      quant::unpack(origin.module->matrix, origin.module->format);
  if (!matrix.ok() || !columns) return matrix;
  return quant::columns_of(*matrix, columns->first, columns->count);
}

Status PackedLoad::unpack_rows(const Job& job) const {
  HEDDLE_ASSIGN_OR_RETURN(const quant::UnpackedMatrix matrix, unpack(origins_[job.origin]));
  for (const Rows& rows : job.rows) {
    const quant::PackedRows& target = weight_->parts[rows.part].packed;
    const int64_t at_once = rows.source_step == 1 ? rows.num_rows : 1;
    for (int64_t i = 0; i < rows.num_rows; i += at_once) {
      quant::pack_rows(matrix, rows.source_row + i * rows.source_step, at_once, target,
                       rows.part_row + i);
    }
  }
  return ok_status();
}

void PackedLoad::round_rows(const Job& job, const WeightSource& source) const {
  for (const Rows& rows : job.rows) {
    const RoundedRows rounded = round(rows, source);
    quant::pack_rows(rounded.matrix, rounded.first, rows.num_rows, weight_->parts[rows.part].packed,
                     rows.part_row);
  }
}

std::optional<DrawnRows> PackedLoad::drawn_rows(const Rows& rows,
                                                const WeightSource& source) const {
  const std::optional<DrawnWeight> weight = source.drawn(origins_[rows.origin].stored);
  if (!weight || weight->mean != 0) return std::nullopt;
  return DrawnRows{.weight = *weight,
                   .first_row = rows.source_row,
                   .row_step = rows.source_step,
                   .num_rows = rows.num_rows};
}

// Rounds whole blocks and whole rows, although the rank keeps only a part of them. The rank's codes
// are then the same as in the weight rounded as a whole.
PackedLoad::RoundedRows PackedLoad::round(const Rows& rows, const WeightSource& source) const {
  const Origin& origin = origins_[rows.origin];
  const int64_t block_rows = origin.rounded->block_rows;
  RoundedRows rounded{.first = row_in_block(rows)};
  Rows blocks = rows;
  const int64_t end = rounded.first + rows.num_rows;
  const int64_t missing = (end + block_rows - 1) / block_rows * block_rows - end;
  blocks.num_rows = end + std::min(missing, rows.rows_after);
  blocks.source_row -= rounded.first * rows.source_step;
  if (const std::optional<DrawnRows> drawn = drawn_rows(blocks, source)) {
    rounded.matrix = draw_matrix(*drawn, *origin.rounded);
  } else {
    const int64_t K = stored_row_width(*origin.piece);
    std::vector<float> values(static_cast<size_t>(blocks.num_rows * K));
    HubPiece whole_rows = rows_of(*origin.piece, blocks.source_row, blocks.source_step,
                                  blocks.num_rows, /*target_row=*/0);
    whole_rows.columns.reset();
    std::vector<CopyJob> copies;
    append_copy_jobs(whole_rows, {.dtype = DType::kF32}, copies);
    for (const CopyJob& copy : copies) {
      run_copy_job(source, origin.stored, copy, reinterpret_cast<std::byte*>(values.data()));
    }
    rounded.matrix = quant::round_to_nearest(values.data(), blocks.num_rows, K, rounding_.scheme,
                                             rounding_.group_size);
  }
  if (const std::optional<CutRange>& columns = origin.piece->columns) {
    rounded.matrix = quant::columns_of(rounded.matrix, columns->first, columns->count);
  }
  return rounded;
}

void PackedLoad::copy_rows(const Job& job, const WeightSource& source) const {
  const Origin& origin = origins_[job.origin];
  for (const Rows& rows : job.rows) {
    const TensorView& target = weight_->parts[rows.part].plain;
    std::vector<CopyJob> copies;
    append_copy_jobs(
        rows_of(*origin.piece, rows.source_row, rows.source_step, rows.num_rows, rows.part_row),
        {.dtype = origin.plain_dtype}, copies);
    for (const CopyJob& copy : copies) {
      run_copy_job(source, origin.stored, copy,
                   static_cast<std::byte*>(const_cast<void*>(target.data)));
    }
  }
}

template <typename StageRows, typename StagePlain>
Status PackedLoad::stage_rows_of(const Job& job, const WeightSource& source,
                                 const StageRows& stage_rows, const StagePlain& stage_plain) const {
  const Origin& origin = origins_[job.origin];
  if (origin.module) {
    const Result<quant::UnpackedMatrix> matrix = unpack(origin);
    if (!matrix.ok()) return matrix.status().with_context(readable(origin.piece->tensor.name));
    for (const Rows& rows : job.rows) HEDDLE_RETURN_IF_ERROR(stage_rows(*matrix, rows));
    return ok_status();
  }
  for (const Rows& rows : job.rows) {
    if (!origin.rounded) {
      HEDDLE_RETURN_IF_ERROR(stage_plain(rows));
      continue;
    }
    const RoundedRows rounded = round(rows, source);
    Rows of_matrix = rows;
    of_matrix.source_row = rounded.first;
    of_matrix.source_step = 1;
    HEDDLE_RETURN_IF_ERROR(stage_rows(rounded.matrix, of_matrix));
  }
  return ok_status();
}

Status PackedLoad::stage_job(size_t index, const WeightSource& source, WeightStage& stage) const {
  const Job& job = jobs_[index];
  const Origin& origin = origins_[job.origin];
  if (origin.rounded && !origin.piece->columns && stage.can_draw()) {
    const Rows& rows = job.rows.front();  // a job for a tensor that is rounded has exactly one Rows
    if (const std::optional<DrawnRows> drawn = drawn_rows(rows, source)) {
      return stage.draw_rows(*drawn,
                             weight_->parts[rows.part].packed.cut(rows.part_row, rows.num_rows));
    }
  }
  return stage_rows_of(
      job, source,
      [&](const quant::UnpackedMatrix& matrix, const Rows& rows) {
        return stage_packed(matrix, rows, stage);
      },
      [&](const Rows& rows) {
        const TensorView& plain = weight_->parts[rows.part].plain;
        const int64_t offset = bytes_of(plain.dtype, rows.part_row * plain.shape[1]);
        return stage_plain(rows, source, places_[rows.part].codes + offset, plain.dtype, stage);
      });
}

Status PackedLoad::stage_dense_job(size_t index, const WeightSource& source, int64_t begin,
                                   DType dtype, WeightStage& stage) const {
  const auto target_byte = [&](const Rows& rows) {
    const int64_t row = weight_->parts[rows.part].first_row + rows.part_row;
    return begin + bytes_of(dtype, row * row_width(*origins_[rows.origin].piece));
  };
  return stage_rows_of(
      jobs_[index], source,
      [&](const quant::UnpackedMatrix& matrix, const Rows& rows) {
        return stage_dense(matrix, rows, target_byte(rows), dtype, stage);
      },
      [&](const Rows& rows) { return stage_plain(rows, source, target_byte(rows), dtype, stage); });
}

Status PackedLoad::stage_packed(const quant::UnpackedMatrix& matrix, const Rows& rows,
                                WeightStage& stage) const {
  const quant::PackedRows& target = weight_->parts[rows.part].packed;
  const quant::RowFormat& format = target.format;
  const PartPlace& place = places_[rows.part];
  if (rows.part_row == 0) HEDDLE_RETURN_IF_ERROR(stage_group_index(rows, stage));
  const int64_t at_once = rows_at_once(format.K, target.rows_per_scale);
  for (int64_t done = 0; done < rows.num_rows; done += at_once) {
    const int64_t row = rows.part_row + done;  // row index within the part
    quant::PackedRows piece{.format = format,
                            .num_rows = std::min(at_once, rows.num_rows - done),
                            .rows_per_scale = target.rows_per_scale};
    piece.first_scale_rows = (target.first_scale_rows + row) % target.rows_per_scale;
    const int64_t code_bytes = aligned(piece.num_rows * format.code_bytes());
    const int64_t scale_bytes = aligned(piece.num_scale_rows() * format.scale_bytes());
    const int64_t zero_bytes = format.has_zeros ? piece.num_rows * format.num_groups() : 0;
    HEDDLE_ASSIGN_OR_RETURN(piece.codes, stage.reserve(code_bytes + scale_bytes + zero_bytes));
    piece.scales = piece.codes + code_bytes;
    piece.zeros = reinterpret_cast<uint8_t*>(piece.scales + scale_bytes);
    const int64_t together = rows.source_step == 1 ? piece.num_rows : 1;
    for (int64_t i = 0; i < piece.num_rows; i += together) {
      quant::pack_rows(matrix, rows.source_row + (done + i) * rows.source_step, together, piece, i);
    }
    HEDDLE_RETURN_IF_ERROR(stage.send(place.codes + row * format.code_bytes(), 0,
                                      piece.num_rows * format.code_bytes()));
    HEDDLE_RETURN_IF_ERROR(stage.send(place.scales + target.scale_row(row) * format.scale_bytes(),
                                      code_bytes, piece.num_scale_rows() * format.scale_bytes()));
    if (!format.has_zeros) continue;
    HEDDLE_RETURN_IF_ERROR(
        stage.send(place.zeros + row * format.num_groups(), code_bytes + scale_bytes, zero_bytes));
  }
  return ok_status();
}

Status PackedLoad::stage_group_index(const Rows& rows, WeightStage& stage) const {
  const int64_t target = places_[rows.part].group_index;
  if (target < 0) return ok_status();
  const std::vector<int32_t>& index = *weight_->parts[rows.part].packed.format.group_index;
  const auto num_bytes = static_cast<int64_t>(index.size() * sizeof(int32_t));
  HEDDLE_ASSIGN_OR_RETURN(std::byte* const piece, stage.reserve(num_bytes));
  std::memcpy(piece, index.data(), static_cast<size_t>(num_bytes));
  return stage.send(target, 0, num_bytes);
}

Status PackedLoad::stage_dense(const quant::UnpackedMatrix& matrix, const Rows& rows,
                               int64_t target_byte, DType dtype, WeightStage& stage) const {
  const quant::RowFormat& format = matrix.format;
  const int64_t K = format.K;
  const int64_t at_once = std::min(rows.num_rows, rows_at_once(K, 1));
  Tensor codes({format.code_bytes()}, DType::kU8);
  Tensor scales({format.scale_bytes()}, DType::kU8);
  Tensor zeros({format.num_groups()}, DType::kU8);
  const quant::PackedRows row{.format = format,
                              .num_rows = 1,
                              .codes = codes.view().as<std::byte>(),
                              .scales = scales.view().as<std::byte>(),
                              .zeros = format.has_zeros ? zeros.view().as<uint8_t>() : nullptr};
  std::vector<float> values(static_cast<size_t>(K));
  for (int64_t done = 0; done < rows.num_rows; done += at_once) {
    const int64_t count = std::min(at_once, rows.num_rows - done);
    HEDDLE_ASSIGN_OR_RETURN(std::byte* const target, stage.reserve(bytes_of(dtype, count * K)));
    for (int64_t i = 0; i < count; ++i) {
      quant::pack_rows(matrix, rows.source_row + (done + i) * rows.source_step, 1, row, 0);
      quant::dequantise_row(row, 0, 0, K, values.data());
      convert_elements(values.data(), DType::kF32, target + bytes_of(dtype, i * K), dtype, K);
    }
    HEDDLE_RETURN_IF_ERROR(
        stage.send(target_byte + bytes_of(dtype, done * K), 0, bytes_of(dtype, count * K)));
  }
  return ok_status();
}

Status PackedLoad::stage_plain(const Rows& rows, const WeightSource& source, int64_t target_byte,
                               DType dtype, WeightStage& stage) const {
  const Origin& origin = origins_[rows.origin];
  std::vector<CopyJob> copies;
  append_copy_jobs(rows_of(*origin.piece, rows.source_row, rows.source_step, rows.num_rows, 0),
                   {.target_byte = target_byte, .dtype = dtype}, copies);
  for (const CopyJob& copy : copies) {
    HEDDLE_RETURN_IF_ERROR(stage_copy_job(source, origin.stored, copy, stage));
  }
  return ok_status();
}

int64_t PackedLoad::packed_bytes() const {
  int64_t bytes = 0;
  for (const quant::PackedWeight::Part& part : weight_->parts) {
    const bool plain = part.packed.format.K == 0;
    bytes += plain ? part.plain.num_bytes() : part.packed.num_bytes();
  }
  return bytes;
}

bool is_quantisable(std::string_view tensor, int rank, bool include_lm_head) {
  // kv_b_proj is also read by columns, which packed rows do not support.
  constexpr std::array<std::string_view, 19> kDelicate = {
      "embed",      ".gate.weight", ".router.",   "shared_expert_gate",
      "in_proj_ba", "in_proj_a",    "in_proj_b.", "conv1d",
      "norm",       "mtp.fc",       "eh_proj",    ".bias",
      "_proj_bias", "kv_b_proj",    ".b_proj.",   ".f_a_proj.",
      ".f_b_proj.", ".g_a_proj.",   ".g_b_proj."};
  // Names of matrices end in ".weight", except those of tensors that contain all experts.
  const bool matrix =
      tensor.ends_with(".weight") || tensor.find(".experts.") != std::string_view::npos;
  if (rank < 2 || !matrix) return false;
  if (tensor.starts_with("lm_head.")) return include_lm_head;
  return std::ranges::none_of(kDelicate, [&](std::string_view part) {
    return tensor.find(part) != std::string_view::npos;
  });
}

bool width_fits(int64_t K, const Rounding& rounding) {
  constexpr int64_t kMxfp4Group = 32;
  switch (rounding.scheme) {
    case quant::Scheme::kInt4:
      return K % rounding.group_size == 0;
    case quant::Scheme::kMxfp4:
      return K % kMxfp4Group == 0;
    default:
      return true;
  }
}

}  // namespace heddle::checkpoint
