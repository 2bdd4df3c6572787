// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_load.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/convert.h"
#include "checkpoint/copy_job.h"
#include "checkpoint/readable.h"
#include "core/check.h"
#include "quant/dequantise.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kAlignment = 64;  // the kernels load whole lines

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

const quant::RowFormat* packed_format(const PackedLoad::Origin& origin) {
  if (origin.module) return &origin.module->format;
  return origin.rounded ? &*origin.rounded : nullptr;
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

// A piece that gives these rows, one run from row 0 on.
HubPiece rows_of(const HubPiece& piece, int64_t source_row, int64_t source_step, int64_t num_rows,
                 int64_t target_row) {
  HubPiece part = piece;
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

  std::vector<std::pair<RowRun, size_t>> runs;  // and the origin
  for (size_t i = 0; i < load.origins_.size(); ++i) {
    const Origin& origin = load.origins_[i];
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
                   .num_rows = run.num_rows});
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
  load.make_jobs(all);
  return load;
}

// A quantised tensor is unpacked once for all its rows; a plain one is read in small stretches.
void PackedLoad::make_jobs(const std::vector<Rows>& all) {
  for (size_t index = 0; index < origins_.size(); ++index) {
    const Origin& origin = origins_[index];
    const int64_t K = row_width(*origin.piece);
    Job whole{.origin = index};
    for (const Rows& rows : all) {
      if (rows.origin != index) continue;
      if (origin.module) {
        whole.rows.push_back(rows);
        whole.bytes += rows.num_rows * origin.module->format.row_bytes();
        continue;
      }
      const int64_t at_once = std::max<int64_t>(1, kCopyJobElements / std::max<int64_t>(K, 1));
      for (int64_t done = 0; done < rows.num_rows; done += at_once) {
        Rows part = rows;
        part.source_row += done * rows.source_step;
        part.part_row += done;
        part.num_rows = std::min(at_once, rows.num_rows - done);
        const int64_t row_bytes =
            origin.rounded ? origin.rounded->row_bytes() : bytes_of(origin.plain_dtype, K);
        jobs_.push_back({.origin = index, .rows = {part}, .bytes = part.num_rows * row_bytes});
      }
    }
    if (!whole.rows.empty()) jobs_.push_back(std::move(whole));
  }
}

int64_t PackedLoad::place(int64_t begin) {
  for (const quant::PackedWeight::Part& part : weight_->parts) {
    part_begins_.push_back(begin);
    if (part.packed.format.K > 0) {
      const quant::RowFormat& format = part.packed.format;
      begin += aligned(part.num_rows * format.code_bytes());
      begin += aligned(part.num_rows * format.scale_bytes());
      if (format.has_zeros) begin += aligned(part.num_rows * format.num_groups());
    } else {
      begin += aligned(part.plain.num_bytes());
    }
  }
  return begin;
}

void PackedLoad::bind(std::byte* arena, bool may_round_x) {
  for (size_t i = 0; i < weight_->parts.size(); ++i) {
    quant::PackedWeight::Part& part = weight_->parts[i];
    std::byte* const begin = arena + part_begins_[i];
    const quant::RowFormat& format = part.packed.format;
    if (format.K == 0) {
      part.plain.data = begin;
      continue;
    }
    part.packed.may_round_x = may_round_x;
    part.packed.codes = begin;
    part.packed.scales = begin + aligned(part.num_rows * format.code_bytes());
    if (format.has_zeros) {
      part.packed.zeros = reinterpret_cast<uint8_t*>(part.packed.scales +
                                                     aligned(part.num_rows * format.scale_bytes()));
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

Status PackedLoad::unpack_rows(const Job& job) const {
  const QuantisedModule& module = *origins_[job.origin].module;
  HEDDLE_ASSIGN_OR_RETURN(const quant::UnpackedMatrix matrix,
                          quant::unpack(module.matrix, module.format));
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
    quant::pack_rows(round(rows, source), 0, rows.num_rows, weight_->parts[rows.part].packed,
                     rows.part_row);
  }
}

quant::UnpackedMatrix PackedLoad::round(const Rows& rows, const WeightSource& source) const {
  const Origin& origin = origins_[rows.origin];
  const int64_t K = row_width(*origin.piece);
  std::vector<float> values(static_cast<size_t>(rows.num_rows * K));
  std::vector<CopyJob> copies;
  append_copy_jobs(rows_of(*origin.piece, rows.source_row, rows.source_step, rows.num_rows, 0),
                   {.dtype = DType::kF32}, copies);
  for (const CopyJob& copy : copies) {
    run_copy_job(source, origin.stored, copy, reinterpret_cast<std::byte*>(values.data()));
  }
  return quant::round_to_nearest(values.data(), rows.num_rows, K, rounding_.scheme,
                                 rounding_.group_size);
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

Status PackedLoad::stage_job(size_t index, const WeightSource& source, int64_t begin, DType dtype,
                             WeightStage& stage) const {
  const Job& job = jobs_[index];
  const Origin& origin = origins_[job.origin];
  if (origin.module) {
    const Result<quant::UnpackedMatrix> matrix =
        quant::unpack(origin.module->matrix, origin.module->format);
    if (!matrix.ok()) return matrix.status().with_context(readable(origin.piece->tensor.name));
    for (const Rows& rows : job.rows) {
      HEDDLE_RETURN_IF_ERROR(stage_packed(*matrix, rows, begin, dtype, stage));
    }
    return ok_status();
  }
  for (const Rows& rows : job.rows) {
    if (!origin.rounded) {
      HEDDLE_RETURN_IF_ERROR(stage_plain(rows, source, begin, dtype, stage));
      continue;
    }
    Rows rounded = rows;  // of the matrix that they become
    rounded.source_row = 0;
    rounded.source_step = 1;
    HEDDLE_RETURN_IF_ERROR(stage_packed(round(rows, source), rounded, begin, dtype, stage));
  }
  return ok_status();
}

int64_t PackedLoad::target_byte(const Rows& rows, int64_t begin, DType dtype) const {
  const int64_t row = weight_->parts[rows.part].first_row + rows.part_row;
  return begin + bytes_of(dtype, row * row_width(*origins_[rows.origin].piece));
}

Status PackedLoad::stage_packed(const quant::UnpackedMatrix& matrix, const Rows& rows,
                                int64_t begin, DType dtype, WeightStage& stage) const {
  const quant::RowFormat& format = matrix.format;
  const int64_t K = format.K;
  const int64_t at_once = std::min(rows.num_rows, std::max<int64_t>(1, kCopyJobElements / K));
  Tensor codes({at_once, format.code_bytes()}, DType::kU8);
  Tensor scales({at_once, format.scale_bytes()}, DType::kU8);
  Tensor zeros({at_once, format.num_groups()}, DType::kU8);
  const quant::PackedRows packed{.format = format,
                                 .num_rows = at_once,
                                 .codes = codes.view().as<std::byte>(),
                                 .scales = scales.view().as<std::byte>(),
                                 .zeros = format.has_zeros ? zeros.view().as<uint8_t>() : nullptr};
  std::vector<float> values(static_cast<size_t>(K));
  for (int64_t done = 0; done < rows.num_rows; done += at_once) {
    const int64_t count = std::min(at_once, rows.num_rows - done);
    HEDDLE_ASSIGN_OR_RETURN(std::byte* const target, stage.reserve(bytes_of(dtype, count * K)));
    for (int64_t i = 0; i < count; ++i) {
      quant::pack_rows(matrix, rows.source_row + (done + i) * rows.source_step, 1, packed, i);
      quant::dequantise_row(packed, i, 0, K, values.data());
      convert_elements(values.data(), DType::kF32, target + bytes_of(dtype, i * K), dtype, K);
    }
    HEDDLE_RETURN_IF_ERROR(stage.send(target_byte(rows, begin, dtype) + bytes_of(dtype, done * K)));
  }
  return ok_status();
}

Status PackedLoad::stage_plain(const Rows& rows, const WeightSource& source, int64_t begin,
                               DType dtype, WeightStage& stage) const {
  const Origin& origin = origins_[rows.origin];
  std::vector<CopyJob> copies;
  append_copy_jobs(rows_of(*origin.piece, rows.source_row, rows.source_step, rows.num_rows, 0),
                   {.target_byte = target_byte(rows, begin, dtype), .dtype = dtype}, copies);
  for (const CopyJob& copy : copies) {
    HEDDLE_RETURN_IF_ERROR(stage_copy_job(source, origin.stored, copy, stage));
  }
  return ok_status();
}

int64_t PackedLoad::packed_bytes() const {
  int64_t bytes = 0;
  for (const quant::PackedWeight::Part& part : weight_->parts) {
    const bool plain = part.packed.format.K == 0;
    bytes += plain ? part.plain.num_bytes() : part.num_rows * part.packed.format.row_bytes();
  }
  return bytes;
}

bool is_quantisable(std::string_view tensor, int rank, bool include_lm_head) {
  // kv_b_proj is read by columns as well as by rows, which packed rows are not made for.
  constexpr std::array<std::string_view, 19> kDelicate = {
      "embed",      ".gate.weight", ".router.",   "shared_expert_gate",
      "in_proj_ba", "in_proj_a",    "in_proj_b.", "conv1d",
      "norm",       "mtp.fc",       "eh_proj",    ".bias",
      "_proj_bias", "kv_b_proj",    ".b_proj.",   ".f_a_proj.",
      ".f_b_proj.", ".g_a_proj.",   ".g_b_proj."};
  // Matrices are weights of modules, or bare blocks of all experts.
  const bool matrix =
      tensor.ends_with(".weight") || tensor.find(".experts.") != std::string_view::npos;
  if (rank < 2 || !matrix) return false;
  if (tensor.starts_with("lm_head.")) return include_lm_head;
  return std::ranges::none_of(kDelicate, [&](std::string_view part) {
    return tensor.find(part) != std::string_view::npos;
  });
}

bool width_fits(int64_t K, const Rounding& rounding) {
  return rounding.scheme != quant::Scheme::kInt4 || K % rounding.group_size == 0;
}

}  // namespace heddle::checkpoint
