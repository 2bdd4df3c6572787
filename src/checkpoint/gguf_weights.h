// SPDX-License-Identifier: Apache-2.0
// The tensors of a GGUF model as one WeightSource, under the names and in the forms that the hub
// has for them. Matrices in blocks (quant/block_formats.h) say so; all of them can be read as
// numbers.
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

// A change that the converter made to the numbers of a tensor, and that reading undoes.
enum class GgufChange : uint8_t {
  kNone,
  kOneAdded,         // 1 + w: norms that are zero-centred in the hub
  kNegatedExponent,  // -exp(w): A_log
};

// A hub tensor as rows of a stored one.
struct GgufSource {
  std::string hub;     // the name in the hub
  std::string stored;  // the name in the file
  Shape shape;         // in the hub; as many columns as are stored, in whatever dimensions
  quant::RowOrder order;
  quant::RowOrder columns = {};  // order within a row; any but the stored order is read as numbers
  bool as_numbers = false;       // always read as numbers, not blocks
  GgufChange change = GgufChange::kNone;
};

class GgufWeights final : public WeightSource {
 public:
  // Stored tensors that no source names keep their own names, but for those in `left_out`, which
  // are none of the weights. Error: kUnimplemented, naming a
  // tensor, its type and what to take instead, for a type that is not served; kInvalidArgument for
  // a source whose rows or columns the stored tensor does not have.
  static Result<GgufWeights> create(GgufModel model, std::vector<GgufSource> sources,
                                    const std::vector<std::string>& left_out = {});

  [[nodiscard]] std::optional<StoredWeight> find(const WeightRequest& request) const override;
  [[nodiscard]] std::vector<std::string_view> names() const override;  // sorted
  void read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
            void* target) const override;

  // Per type of blocks, the number of tensors that are dequantised when read, and the reason.
  [[nodiscard]] std::vector<std::string> notes() const override;

  [[nodiscard]] const GgufModel& model() const { return model_; }

 private:
  struct Entry {
    GgufSource source;
    GgufModel::Stored stored;
    int64_t width = 1;  // columns of a row
  };

  explicit GgufWeights(GgufModel model) : model_(std::move(model)) {}

  Status add(GgufSource source);
  [[nodiscard]] quant::BlockRows rows_of(const Entry& entry) const;
  void read_part(const Entry& entry, int64_t row, int64_t column, int64_t count, DType dtype,
                 void* target) const;

  GgufModel model_;
  std::vector<std::unique_ptr<const Entry>> entries_;
  std::unordered_map<std::string_view, const Entry*> by_name_;  // keys live in entries_
};

}  // namespace heddle::checkpoint
