// SPDX-License-Identifier: Apache-2.0
// PackedLoad: one weight on its way from quantised hub tensors, or from plain ones that are
// quantised now, to packed rows. A weight's rows may come from several hub tensors that are stored
// in several ways; consecutive rows of one way become one part (quant/packed_rows.h).
//
// Plan, place, then run the jobs in any order on any thread: each unpacks one hub tensor (or some
// rows of a plain one) and packs its rows where they belong.
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

// Tensors of an unquantised checkpoint worth quantising: the matrices of attention, mixers, MLPs
// and experts. Embeddings, routers, gates, convolutions and norms are small or sensitive and stay
// unquantised, as does the output head unless requested.
struct Rounding {
  quant::Scheme scheme = quant::Scheme::kInt8;
  int64_t group_size = 128;  // for kInt4
  bool include_lm_head = false;
};

// Whether the tensor is such a matrix, by its name and rank.
[[nodiscard]] bool is_quantisable(std::string_view tensor, int rank, bool include_lm_head);

// Whether a row of K columns can be cut into this scheme's groups.
[[nodiscard]] bool width_fits(int64_t K, const Rounding& rounding);

class PackedLoad {
 public:
  // The storage of one piece of the assembly, and its form in memory.
  struct Origin {
    const HubPiece* piece = nullptr;
    std::optional<QuantisedModule> module;    // quantised in the checkpoint
    StoredWeight stored;                      // otherwise: a plain tensor
    std::optional<quant::RowFormat> rounded;  // target format of rows quantised at load time
    DType plain_dtype = DType::kBf16;         // dtype of rows that stay plain
    // The format in memory, `module`'s or `rounded`, for the columns that the piece takes; set by
    // plan().
    std::optional<quant::RowFormat> packed;
  };

  // Error: kUnimplemented for rows too wide to serve, and for rows that are stored in several ways
  // where Packing::kAlike says that they must not be; names the tensors.
  static Result<PackedLoad> plan(const WeightSpec& spec, std::vector<Origin> origins,
                                 const Rounding& rounding);

  // Where the parts lie, from `begin` on; returns the end. `on_device`: in memory that is laid out
  // for a GPU, which also needs the groups of columns in activation order.
  int64_t place(int64_t begin, bool on_device);

  // Sets the parts' addresses, whether products may round x for them, and whether `arena` is the
  // memory of a GPU.
  void bind(std::byte* arena, bool may_round_x, bool on_gpu);

  // The weight; it stays where it is when this is moved. On a device its parts have addresses
  // that the host does not read.
  [[nodiscard]] std::unique_ptr<quant::PackedWeight>& weight() { return weight_; }

  [[nodiscard]] size_t num_jobs() const { return jobs_.size(); }

  // About how much memory the job writes.
  [[nodiscard]] int64_t job_bytes(size_t job) const { return jobs_[job].bytes; }

  // Error: as quant::unpack, with the module's name.
  Status run_job(size_t job, const WeightSource& source) const;

  // The same into device memory. If the source draws numbers that are then rounded, a GPU draws
  // codes directly (drawn_weight.h). Error: as above, and those of the stage.
  Status stage_job(size_t job, const WeightSource& source, WeightStage& stage) const;

  // Instead of place(), bind() and stage_job(): the job's rows as the numbers they stand for,
  // rounded to `dtype` (fp32, bf16 or fp16), on the way to a dense weight that begins at `begin`.
  Status stage_dense_job(size_t job, const WeightSource& source, int64_t begin, DType dtype,
                         WeightStage& stage) const;

  // Bytes of the packed parts.
  [[nodiscard]] int64_t packed_bytes() const;

 private:
  struct Rows {
    size_t origin = 0;
    size_t part = 0;
    int64_t source_row = 0;
    int64_t source_step = 1;
    int64_t part_row = 0;
    int64_t num_rows = 0;
    int64_t rows_before = 0;  // rows of the whole run before and after these: see RowRun
    int64_t rows_after = 0;
  };

  // Whole rows of a quantised matrix, and the index of the first of them that a job copies.
  struct RoundedRows {
    quant::UnpackedMatrix matrix;
    int64_t first = 0;
  };

  struct Job {
    size_t origin = 0;
    std::vector<Rows> rows;
    int64_t bytes = 0;
  };

  // Where the arrays of a part begin.
  struct PartPlace {
    int64_t codes = 0;  // or the rows of a plain part
    int64_t scales = 0;
    int64_t zeros = 0;
    int64_t group_index = -1;  // none
  };

  void share_scales(const std::vector<Rows>& all);
  void make_jobs(const std::vector<Rows>& all);
  Status unpack_rows(const Job& job) const;
  void round_rows(const Job& job, const WeightSource& source) const;
  void copy_rows(const Job& job, const WeightSource& source) const;
  [[nodiscard]] RoundedRows round(const Rows& rows, const WeightSource& source) const;
  [[nodiscard]] int64_t row_in_block(const Rows& rows) const;
  Result<quant::UnpackedMatrix> unpack(const Origin& origin) const;

  // The rule of rows that are rounded, where the source draws them.
  [[nodiscard]] std::optional<DrawnRows> drawn_rows(const Rows& rows,
                                                    const WeightSource& source) const;

  // Calls stage_rows(matrix, rows) for rows of quantised matrices, `rows` counted as in `matrix`,
  // and stage_plain(rows) for others.
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
