// SPDX-License-Identifier: Apache-2.0
// The tensors of a GGUF model as one WeightSource, with the names and shapes that they have in the
// hub. find() marks matrices that are stored in quantised blocks (quant/block_formats.h). Every
// tensor can be read as plain numbers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/gguf_model.h"
#include "checkpoint/weight_source.h"

namespace heddle::checkpoint {

// A change that the GGUF converter made to the numbers of a tensor and that reading reverts.
enum class GgufChange : uint8_t {
  kNone,
  kOneAdded,         // 1 + w: norms that are zero-centred in the hub
  kNegatedExponent,  // -exp(w): the logarithmic decays A_log
};

// A hub tensor that is read from rows of a tensor in the GGUF file.
struct GgufSource {
  std::string hub;     // the tensor's name in the hub
  std::string stored;  // the tensor's name in the GGUF file
  Shape shape;         // shape in the hub; its rows are as wide as the stored ones, however many
                       // dimensions it has
  quant::RowOrder order;
  quant::RowOrder columns = {};  // order of elements within a row; rows with reordered elements are
                                 // read as plain numbers
  bool as_numbers = false;       // true: blocks are always dequantised when they are read
  GgufChange change = GgufChange::kNone;
};

class GgufWeights final : public WeightSource {
 public:
  // Creates the source. Stored tensors that no entry of `sources` names keep their own names,
  // except those in `left_out`, which are not weights. Error: kUnimplemented, naming a tensor, its
  // type and an alternative, for a type that is not served; kInvalidArgument for a source whose
  // rows or columns the stored tensor does not have.
  static Result<GgufWeights> create(GgufModel model, std::vector<GgufSource> sources,
                                    const std::vector<std::string>& left_out = {});

  [[nodiscard]] std::optional<StoredWeight> find(const WeightRequest& request) const override;
  // the hub names of all tensors, sorted
  [[nodiscard]] std::vector<std::string_view> names() const override;
  void read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
            void* target) const override;

  // For each block type: how many tensors are dequantised when they are read, and why.
  [[nodiscard]] std::vector<std::string> notes() const override;

  [[nodiscard]] const GgufModel& model() const { return model_; }

 private:
  struct Entry {
    GgufSource source;
    GgufModel::Stored stored;
    int64_t width = 1;  // number of elements in a row
  };

  explicit GgufWeights(GgufModel model) : model_(std::move(model)) {}

  Status add(GgufSource source);
  [[nodiscard]] quant::BlockRows rows_of(const Entry& entry) const;
  void read_part(const Entry& entry, int64_t row, int64_t column, int64_t count, DType dtype,
                 void* target) const;

  GgufModel model_;
  std::vector<std::unique_ptr<const Entry>> entries_;
  // tensors by hub name; keys and values point into entries_
  std::unordered_map<std::string_view, const Entry*> by_name_;
};

}  // namespace heddle::checkpoint
