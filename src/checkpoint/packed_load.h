// SPDX-License-Identifier: Apache-2.0
// PackedLoad: loads one weight as packed rows, from quantised hub tensors or from plain ones that
// are quantised now. A weight's rows may come from several hub tensors with different formats;
// consecutive rows of one format become one part (quant/packed_rows.h).
//
// Call plan(), place(), then run the jobs in any order on any thread. Each job unpacks one hub
// tensor (or some rows of a plain one) and packs its rows at their final location.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "checkpoint/drawn_codes.h"
#include "checkpoint/quantised_modules.h"
#include "checkpoint/weight_map.h"
#include "checkpoint/weight_source.h"
#include "checkpoint/weight_stage.h"
#include "quant/round_to_nearest.h"

namespace heddle::checkpoint {

// Selects the tensors of an unquantised checkpoint that are quantised at load: the matrices of
// attention, mixers, MLPs and experts. Embeddings, routers, gates, convolutions and norms are small
// or sensitive and stay unquantised, as does the output head unless requested.
struct Rounding {
  quant::Scheme scheme = quant::Scheme::kInt8;
  int64_t group_size = 128;  // columns that share a scale in kInt4
  bool include_lm_head = false;
};

// Whether the tensor is a matrix that `Rounding` quantises, by its name and rank.
[[nodiscard]] bool is_quantisable(std::string_view tensor, int rank, bool include_lm_head);

// Whether a row of K columns can be cut into this scheme's groups.
[[nodiscard]] bool width_fits(int64_t K, const Rounding& rounding);

class PackedLoad {
 public:
  // How one piece of the assembly is stored, and its format in memory.
  struct Origin {
    const HubPiece* piece = nullptr;
    std::optional<QuantisedModule> module;    // set if the checkpoint has quantised the piece
    StoredWeight stored;                      // the plain tensor, if `module` is not set
    std::optional<quant::RowFormat> rounded;  // target format of rows quantised at load time
    DType plain_dtype = DType::kBf16;         // dtype of rows that stay plain
    // The format in memory of the columns that the piece uses, from `module` or `rounded`; set by
    // plan().
    std::optional<quant::RowFormat> packed;
  };

  // Error: kUnimplemented for rows too wide to serve, and for rows that are stored in several ways
  // where Packing::kAlike says that they must not be; names the tensors.
  static Result<PackedLoad> plan(const WeightSpec& spec, std::vector<Origin> origins,
                                 const Rounding& rounding);

  // Assigns the parts offsets in the arena, from `begin` on, and returns the end offset.
  // `on_device`: lays them out for a GPU, which also needs the groups of columns in activation
  // order.
  int64_t place(int64_t begin, bool on_device);

  // Sets the parts' addresses in `arena`, whether products may round x when they use the parts, and
  // whether `arena` is GPU memory.
  void bind(std::byte* arena, bool may_round_x, bool on_gpu);

  // The packed weight; its address does not change when this object is moved. The host must not
  // read through the addresses of its parts if they are on a device.
  [[nodiscard]] std::unique_ptr<quant::PackedWeight>& weight() { return weight_; }

  [[nodiscard]] size_t num_jobs() const { return jobs_.size(); }

  // Approximate number of bytes that the job writes.
  [[nodiscard]] int64_t job_bytes(size_t job) const { return jobs_[job].bytes; }

  // Runs a job on the host. Error: as quant::unpack, with the module's name.
  Status run_job(size_t job, const WeightSource& source) const;

  // As run_job(), but writes to device memory through `stage`. If the source draws numbers that are
  // then rounded, a GPU draws codes directly (drawn_weight.h). Error: as run_job(), and those of
  // the stage.
  Status stage_job(size_t job, const WeightSource& source, WeightStage& stage) const;

  // Used instead of place(), bind() and stage_job() for a weight that is dequantised: converts the
  // job's codes to numbers rounded to `dtype` (fp32, bf16 or fp16) and stages them for a dense
  // weight that begins at byte `begin` of the arena.
  Status stage_dense_job(size_t job, const WeightSource& source, int64_t begin, DType dtype,
                         WeightStage& stage) const;

  // Total size in bytes of the packed parts.
  [[nodiscard]] int64_t packed_bytes() const;

 private:
  struct Rows {
    size_t origin = 0;
    size_t part = 0;
    int64_t source_row = 0;
    int64_t source_step = 1;
    int64_t part_row = 0;
    int64_t num_rows = 0;
    int64_t rows_before = 0;  // see RowRun::rows_before and rows_after
    int64_t rows_after = 0;
  };

  // Whole rows of a quantised matrix; `first` is the index of the first row that a job copies.
  struct RoundedRows {
    quant::UnpackedMatrix matrix;
    int64_t first = 0;
  };

  struct Job {
    size_t origin = 0;
    std::vector<Rows> rows;
    int64_t bytes = 0;
  };

  // Byte offsets in the arena at which the arrays of a part begin.
  struct PartPlace {
    int64_t codes = 0;  // offset of the codes or, in a plain part, of its rows
    int64_t scales = 0;
    int64_t zeros = 0;
    int64_t group_index = -1;  // -1: the part has no group index
  };

  void share_scales(const std::vector<Rows>& all);
  void make_jobs(const std::vector<Rows>& all);
  Status unpack_rows(const Job& job) const;
  void round_rows(const Job& job, const WeightSource& source) const;
  void copy_rows(const Job& job, const WeightSource& source) const;
  [[nodiscard]] RoundedRows round(const Rows& rows, const WeightSource& source) const;
  [[nodiscard]] int64_t row_in_block(const Rows& rows) const;
  Result<quant::UnpackedMatrix> unpack(const Origin& origin) const;

  // The rows to draw if the rows are rounded at load and the source is a generator; otherwise none.
  [[nodiscard]] std::optional<DrawnRows> drawn_rows(const Rows& rows,
                                                    const WeightSource& source) const;

  // Calls stage_rows(matrix, rows) for rows of quantised matrices, where `rows` counts rows of
  // `matrix`, and stage_plain(rows) for other rows.
  template <typename StageRows, typename StagePlain>
  Status stage_rows_of(const Job& job, const WeightSource& source, const StageRows& stage_rows,
                       const StagePlain& stage_plain) const;
  Status stage_packed(const quant::UnpackedMatrix& matrix, const Rows& rows,
                      WeightStage& stage) const;
  Status stage_group_index(const Rows& rows, WeightStage& stage) const;
  Status stage_dense(const quant::UnpackedMatrix& matrix, const Rows& rows, int64_t target_byte,
                     DType dtype, WeightStage& stage) const;
  Status stage_plain(const Rows& rows, const WeightSource& source, int64_t target_byte, DType dtype,
                     WeightStage& stage) const;

  std::vector<Origin> origins_;
  Rounding rounding_;
  std::unique_ptr<quant::PackedWeight> weight_;
  std::vector<PartPlace> places_;
  std::vector<Job> jobs_;
};

}  // namespace heddle::checkpoint
