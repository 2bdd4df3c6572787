// SPDX-License-Identifier: Apache-2.0
// WeightSpec: how a weight of the model is assembled from a checkpoint's tensors, as data. A model
// lists one WeightSpec per weight, and load_weights() (load_weights.h) does the rest.
//
// The unit is a row. A tensor of rank 2 or more is a list of rows as long as its last dimension; a
// vector is a list of rows of one element. Each row of a weight comes from a row of a hub tensor.
// That covers concatenation, stacked experts, interleaved projections and, with RowForm, transposed
// tensors. A rank that holds only some columns of a weight reads a range of each row
// (weight_slice.h):
//
//   {.name = "layers.3.qkv", .shape = {5120, 2048},
//    .alternatives = {concatenated({{"model.layers.3.self_attn.q_proj.weight", {4096, 2048}},
//                                   {"model.layers.3.self_attn.k_proj.weight", {512, 2048}},
//                                   {"model.layers.3.self_attn.v_proj.weight", {512, 2048}}})}}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/weight_cut.h"
#include "checkpoint/weight_source.h"
#include "core/tensor.h"

namespace heddle::checkpoint {

// `num_rows` rows that are consecutive in the weight; in the hub tensor they are consecutive or
// every `source_step`-th.
struct RowRun {
  int64_t source_row = 0;
  int64_t target_row = 0;
  int64_t num_rows = 0;
  int64_t source_step = 1;
  // If other ranks hold parts of this run: the number of the run's rows before and after this
  // rank's. Rows that are quantised at load are grouped in blocks from the start of the whole run.
  int64_t rows_before = 0;
  int64_t rows_after = 0;

  friend bool operator==(const RowRun&, const RowRun&) = default;
};

struct HubTensor {
  std::string name;
  Shape shape;  // must equal the stored shape
};

// The order of the elements of a hub tensor.
enum class RowForm : uint8_t {
  kLastDimension,  // a row is as long as the last dimension
  kElement,        // every element counts as a row: for elements interleaved within a dimension
  kInputMajor,     // stored [.., K, N], and the rows are the columns of each [K, N]: N rows of K
};

struct HubPiece {
  HubTensor tensor;
  std::vector<RowRun> runs;  // the rows that the weight uses; empty if other ranks hold all rows of
                             // this tensor
  RowForm form = RowForm::kLastDimension;
  // The columns that are used of each row; none: all. Not allowed with kElement.
  std::optional<CutRange> columns = std::nullopt;
};

// The elements in a row of the hub tensor, how many of them the weight takes, and the number of
// rows.
[[nodiscard]] int64_t stored_row_width(const HubPiece& piece);
[[nodiscard]] int64_t row_width(const HubPiece& piece);
[[nodiscard]] int64_t num_rows(const HubPiece& piece);

// The pieces' target rows, in rows of the piece, cover the weight exactly once; rows of a hub
// tensor may be unused.
using Assembly = std::vector<HubPiece>;

enum class WeightDType : uint8_t {
  kRun,     // the dtype of --dtype or, without it, as stored; the file must have fp32, bf16 or fp16
  kF32,     // always fp32, for weights that 16 bits would harm
  kStored,  // the stored dtype, whatever it is
};

// The layouts that the code that uses a weight accepts if the weight is quantised.
enum class Packing : uint8_t {
  kInParts,   // rows may have different formats or be unquantised: linear layers
  kAlike,     // all rows have the same format: the experts of a layer
  kColumns,   // as kInParts on the host; on devices, which also read columns, dequantised to dense
              // rows
  kLookedUp,  // as kColumns, for rows that token ids select; LoadOptions::rounding does not
              // quantise them
};

struct WeightSpec {
  std::string name;  // Heddle's name of the weight
  Shape shape;
  // The layouts that checkpoints may have. The first one of which any tensor exists with the right
  // shape is used.
  std::vector<Assembly> alternatives;
  WeightDType dtype = WeightDType::kRun;
  Packing packing = Packing::kInParts;
  float offset = 0;  // added to every element: 1 for zero-centred norm weights; requires kF32
  Initial initial = Initial::kSmall;
  bool on_host = false;  // the host also reads the numbers: LoadedWeights::host()
  WeightCut cut = {};    // how the ranks of a group share the weight
  int64_t num_uses = 1;  // number of layers that multiply by this weight
};

[[nodiscard]] Assembly whole(HubTensor tensor);

// Concatenates the tensors along dimension 0, in the given order.
[[nodiscard]] Assembly concatenated(std::vector<HubTensor> tensors);

[[nodiscard]] Assembly permuted(HubTensor tensor, std::vector<RowRun> runs);

// For each index of [0, count): the concatenation of `patterns`, in whose names '#' stands for the
// index. Per-expert tensors become one block:
//   stacked(64, {{"mlp.experts.#.gate_proj.weight", {I, H}}, {"mlp.experts.#.up_proj.weight", {I,
//   H}}})
// gives [64, 2*I, H].
[[nodiscard]] Assembly stacked(int64_t count, const std::vector<HubTensor>& patterns);

// Elements of one row of a tensor of this shape.
[[nodiscard]] int64_t row_width(const Shape& shape);

}  // namespace heddle::checkpoint
