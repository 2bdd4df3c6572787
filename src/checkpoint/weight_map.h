// SPDX-License-Identifier: Apache-2.0
// The assembly of our weights from a checkpoint's tensors, as data: a model lists one
// WeightSpec per weight, load_weights() (load_weights.h) does the rest.
//
// Everything is a matter of rows. A tensor of rank 2 or more is a list of rows as long as its last
// dimension; a vector is a list of rows of one element. A weight takes each of its rows from some
// row of some hub tensor. That covers concatenation, stacked experts and interleaved projections
// alike, and with RowForm transposed ones:
//
//   {.name = "layers.3.qkv", .shape = {5120, 2048},
//    .alternatives = {concatenated({{"model.layers.3.self_attn.q_proj.weight", {4096, 2048}},
//                                   {"model.layers.3.self_attn.k_proj.weight", {512, 2048}},
//                                   {"model.layers.3.self_attn.v_proj.weight", {512, 2048}}})}}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/weight_cut.h"
#include "checkpoint/weight_source.h"
#include "core/tensor.h"

namespace heddle::checkpoint {

// `num_rows` rows of a hub tensor that stand together in ours: consecutive ones, or every
// `source_step`-th.
struct RowRun {
  int64_t source_row = 0;
  int64_t target_row = 0;
  int64_t num_rows = 0;
  int64_t source_step = 1;

  friend bool operator==(const RowRun&, const RowRun&) = default;
};

struct HubTensor {
  std::string name;
  Shape shape;  // must be the stored shape exactly
};

// The order of the elements of a hub tensor.
enum class RowForm : uint8_t {
  kLastDimension,  // a row is as long as the last dimension
  kElement,        // every element is a row: for what is interleaved within a dimension
  kInputMajor,     // stored [.., K, N], and the rows are the columns of each [K, N]: N rows of K
};

struct HubPiece {
  HubTensor tensor;
  std::vector<RowRun> runs;
  RowForm form = RowForm::kLastDimension;
};

// Elements of one row of a piece, and how many rows it has.
[[nodiscard]] int64_t row_width(const HubPiece& piece);
[[nodiscard]] int64_t num_rows(const HubPiece& piece);

// The pieces' target rows, counted in the piece's own rows, cover the weight exactly once; they may
// leave out rows of a hub tensor.
using Assembly = std::vector<HubPiece>;

enum class WeightDType : uint8_t {
  kRun,     // the run's --dtype; as stored without one. Must be fp32, bf16 or fp16 in the file
  kF32,     // fp32 whatever the file has, for what is too delicate for 16 bits
  kStored,  // as stored, any dtype
};

// The forms in which the reader of a weight takes it where the checkpoint has quantised it.
enum class Packing : uint8_t {
  kInParts,   // rows may be stored in several ways, or not quantised: a linear layer
  kAlike,     // all rows in one way: the experts of a layer
  kColumns,   // as kInParts on the host; a device, which also reads columns, gets dense rows
  kLookedUp,  // likewise, for rows that are looked up by token id; LoadOptions::rounding leaves
              // them
};

struct WeightSpec {
  std::string name;  // ours
  Shape shape;
  // Ways a checkpoint may store it; the first of which any tensor exists, in the shape it says, is
  // taken.
  std::vector<Assembly> alternatives;
  WeightDType dtype = WeightDType::kRun;
  Packing packing = Packing::kInParts;
  float offset = 0;  // added to every element: 1 for zero-centred norm weights. Needs kF32
  Initial initial = Initial::kSmall;
  bool on_host = false;  // its numbers are read there, too: LoadedWeights::host()
  WeightCut cut = {};    // how ranks share it; nothing reads it before there are ranks
  int64_t num_uses = 1;  // layers that multiply by it
};

[[nodiscard]] Assembly whole(HubTensor tensor);

// Along dimension 0, in the order given.
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
