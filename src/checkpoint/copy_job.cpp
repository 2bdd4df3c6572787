// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/copy_job.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::checkpoint {

namespace {

// Copies rows whose elements are apart in the file, as the columns of a stored matrix are. The
// matrix is read row by row and each row is scattered to the targets, whose current cache lines
// stay cached.
template <typename Element>
void copy_columns(const WeightSource& source, const StoredWeight& stored, const CopyJob& job,
                  std::byte* target) {
  const int64_t span = (job.num_rows - 1) * job.row_step + 1;
  std::vector<Element> line(static_cast<size_t>(span));
  auto* out = reinterpret_cast<Element*>(target);
  for (int64_t k = 0; k < job.row_width; ++k) {
    source.read(stored, job.first + k * job.element_step, span, job.dtype, line.data());
    for (int64_t row = 0; row < job.num_rows; ++row) {
      out[row * job.row_width + k] = line[static_cast<size_t>(row * job.row_step)];
    }
  }
}

void copy_columns(const WeightSource& source, const StoredWeight& stored, const CopyJob& job,
                  std::byte* target) {
  switch (bits_of(job.dtype)) {
    case 8:
      return copy_columns<uint8_t>(source, stored, job, target);
    case 16:
      return copy_columns<uint16_t>(source, stored, job, target);
    default:
      HEDDLE_CHECK_EQ(bits_of(job.dtype), 32);
      return copy_columns<uint32_t>(source, stored, job, target);
  }
}

void copy_rows(const WeightSource& source, const StoredWeight& stored, const CopyJob& job,
               std::byte* target) {
  const bool dense = job.row_step == job.row_width;
  const int64_t num_reads = dense ? 1 : job.num_rows;
  const int64_t count = dense ? job.num_rows * job.row_width : job.row_width;
  for (int64_t i = 0; i < num_reads; ++i) {
    source.read(stored, job.first + i * job.row_step, count, job.dtype,
                target + bytes_of(job.dtype, i * job.row_width));
  }
}

// Rows [begin, begin + count) of a run whose first row begins at element `first`.
CopyJob part_of(const CopyJob& run, int64_t begin, int64_t count) {
  CopyJob part = run;
  part.first += begin * run.row_step;
  part.num_rows = count;
  part.target_byte += bytes_of(run.dtype, begin * run.row_width);
  return part;
}

// Describes a contiguous run as one long row, which may be cut anywhere.
CopyJob as_one_row(const CopyJob& run) {
  CopyJob row = run;
  row.row_width = row.row_step = 1;
  row.num_rows = run.num_rows * run.row_width;
  return row;
}

}  // namespace

void append_copy_jobs(const HubPiece& piece, const CopyJob& whole, std::vector<CopyJob>& jobs) {
  const Shape& shape = piece.tensor.shape;
  const int64_t stored_width = stored_row_width(piece);
  const int64_t width = row_width(piece);
  const int64_t first_column = piece.columns ? piece.columns->first : 0;
  for (const RowRun& run : piece.runs) {
    CopyJob rows = whole;
    rows.row_width = width;
    rows.num_rows = run.num_rows;
    rows.target_byte += bytes_of(whole.dtype, run.target_row * width);
    if (piece.form == RowForm::kInputMajor) {
      const int64_t N = shape[shape.rank() - 1];
      HEDDLE_CHECK(run.num_rows == 0 ||
                   run.source_row / N ==
                       (run.source_row + (run.num_rows - 1) * run.source_step) / N);
      rows.first = (run.source_row / N * stored_width + first_column) * N + run.source_row % N;
      rows.row_step = run.source_step;
      rows.element_step = N;
    } else {
      rows.first = run.source_row * stored_width + first_column;
      rows.row_step = run.source_step * stored_width;
      if (rows.row_step == width) rows = as_one_row(rows);
    }
    const int64_t at_once =
        std::max<int64_t>(1, kCopyJobElements / std::max<int64_t>(rows.row_width, 1));
    for (int64_t begin = 0; begin < rows.num_rows; begin += at_once) {
      jobs.push_back(part_of(rows, begin, std::min(at_once, rows.num_rows - begin)));
    }
  }
}

void run_copy_job(const WeightSource& source, const StoredWeight& stored, const CopyJob& job,
                  std::byte* memory) {
  std::byte* const target = memory + job.target_byte;
  if (job.element_step == 1) {
    copy_rows(source, stored, job, target);
  } else {
    copy_columns(source, stored, job, target);
  }
  if (job.offset == 0) return;
  auto* values = reinterpret_cast<float*>(target);
  for (int64_t i = 0; i < job.num_rows * job.row_width; ++i) values[i] += job.offset;
}

Status stage_copy_job(const WeightSource& source, const StoredWeight& stored, const CopyJob& job,
                      WeightStage& stage) {
  if (stage.can_draw()) {
    if (const auto weight = source.drawn(stored)) return stage.draw(*weight, job);
  }
  HEDDLE_ASSIGN_OR_RETURN(std::byte* const piece, stage.reserve(job.num_bytes()));
  CopyJob into_piece = job;
  into_piece.target_byte = 0;
  run_copy_job(source, stored, into_piece, piece);
  return stage.send(job.target_byte, 0, job.num_bytes());
}

}  // namespace heddle::checkpoint
