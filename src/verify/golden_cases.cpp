// SPDX-License-Identifier: Apache-2.0
#include "verify/golden_cases.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace heddle::verify {

namespace {

// An aligned copy of a tensor, which may be at any offset in the file. Error: kNotFound, kDataLoss
// for another dtype.
Result<Tensor> read_tensor(const checkpoint::SafetensorsFile& file, const std::string& name,
                           DType dtype) {
  HEDDLE_ASSIGN_OR_RETURN(const TensorView view, file.view(name));
  if (view.dtype != dtype) {
    return data_loss(
        fmt::format("{} is {}, not {}", name, to_string(view.dtype), to_string(dtype)));
  }
  Tensor tensor(view.shape, view.dtype);
  if (view.num_bytes() > 0) {
    std::memcpy(tensor.view().data, view.data, static_cast<size_t>(view.num_bytes()));
  }
  return tensor;
}

// Integers of 32 or 64 bits. Error: as read_tensor(); kDataLoss for a number of more than 32 bits.
Result<Tensor> read_integers(const checkpoint::SafetensorsFile& file, const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(const TensorView view, file.view(name));
  if (view.dtype != DType::kI64) return read_tensor(file, name, DType::kI32);
  HEDDLE_ASSIGN_OR_RETURN(const Tensor wide, read_tensor(file, name, DType::kI64));
  Tensor narrow(view.shape, DType::kI32);
  for (size_t i = 0; i < wide.span<int64_t>().size(); ++i) {
    const int64_t value = wide.span<int64_t>()[i];
    narrow.span<int32_t>()[i] = static_cast<int32_t>(value);
    if (narrow.span<int32_t>()[i] != value) {
      return data_loss(fmt::format("{} contains {}, which is not a 32-bit integer", name, value));
    }
  }
  return narrow;
}

std::vector<TokenId> to_ids(const Tensor& tensor) {
  return {tensor.span<TokenId>().begin(), tensor.span<TokenId>().end()};
}

Result<RecordedPictures> read_pictures(const checkpoint::SafetensorsFile& file,
                                       const std::string& prefix, int64_t num_tokens) {
  RecordedPictures pictures;
  HEDDLE_ASSIGN_OR_RETURN(pictures.patches,
                          read_tensor(file, prefix + "pixel_values", DType::kF32));
  HEDDLE_ASSIGN_OR_RETURN(const Tensor grids, read_integers(file, prefix + "image_grid_thw"));
  const Shape& shape = grids.shape();
  int64_t left = pictures.patches.shape().rank() == 2 ? pictures.patches.shape()[0] : -1;
  const bool is_list = shape.rank() == 2 && shape[1] == 3;
  for (int64_t i = 0; is_list && left >= 0 && i < shape[0]; ++i) {
    const auto* const grid = grids.view().row<int32_t>(i);
    const bool fits = grid[0] == 1 && grid[1] > 0 && grid[2] > 0 && grid[1] <= left / grid[2];
    left = fits ? left - int64_t{grid[1]} * grid[2] : -1;
    pictures.grids.push_back({.height = grid[1], .width = grid[2]});
  }
  if (!is_list || left != 0) {
    return data_loss(fmt::format(
        "{0}pixel_values {1} do not have the number of patches of {0}image_grid_thw {2}", prefix,
        pictures.patches.shape().to_string(), shape.to_string()));
  }
  const std::string name = prefix + "position_ids";
  if (file.find(name) == nullptr) return pictures;
  HEDDLE_ASSIGN_OR_RETURN(const Tensor positions, read_integers(file, name));
  if (positions.shape() != Shape{3, num_tokens}) {
    return data_loss(
        fmt::format("{} is {}, not [3, {}]", name, positions.shape().to_string(), num_tokens));
  }
  pictures.positions = to_ids(positions);
  return pictures;
}

}  // namespace

Result<std::vector<GoldenCase>> read_golden_cases(const checkpoint::SafetensorsFile& file) {
  constexpr std::string_view kIds = "input_ids";
  std::vector<GoldenCase> cases;
  for (const checkpoint::TensorEntry& entry : file.tensors()) {
    if (!entry.name.ends_with(kIds)) continue;
    const std::string prefix(entry.name.substr(0, entry.name.size() - kIds.size()));
    if (!prefix.empty() && !prefix.ends_with('.')) continue;
    GoldenCase golden{.name = prefix.empty() ? "case" : prefix.substr(0, prefix.size() - 1)};
    HEDDLE_ASSIGN_OR_RETURN(const Tensor ids, read_integers(file, std::string(entry.name)));
    HEDDLE_ASSIGN_OR_RETURN(golden.logits, read_tensor(file, prefix + "logits", DType::kF32));
    const int64_t T = ids.num_elements();
    const Shape& logits = golden.logits.shape();
    if (T == 0 || logits.rank() != 2 || logits[0] < 1 || logits[0] > T) {
      return data_loss(fmt::format("{}: {} input_ids and logits {} do not belong together",
                                   golden.name, T, logits.to_string()));
    }
    golden.ids = to_ids(ids);
    int64_t& step = golden.logits_row_step;
    if (const std::string name = prefix + "logits_step"; file.find(name) != nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(const Tensor given, read_integers(file, name));
      if (given.num_elements() == 1) step = std::max(given.span<const int32_t>()[0], 1);
    }
    while ((T + step - 1) / step > logits[0]) ++step;
    if ((T + step - 1) / step != logits[0]) {
      return data_loss(fmt::format("{}: {} rows of logits are not those of every k-th of {} tokens",
                                   golden.name, logits[0], T));
    }
    if (const std::string name = prefix + "hidden_states"; file.find(name) != nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(golden.hidden_states, read_tensor(file, name, DType::kF32));
      const Shape& shape = golden.hidden_states->shape();
      if (shape.rank() != 3 || shape[1] != T) {
        return data_loss(fmt::format("{} {} do not fit {} tokens", name, shape.to_string(), T));
      }
    }
    for (const std::string& name : {prefix + "greedy", prefix + "greedy_ids"}) {
      if (file.find(name) == nullptr) continue;
      HEDDLE_ASSIGN_OR_RETURN(const Tensor greedy, read_integers(file, name));
      golden.greedy = to_ids(greedy);
    }
    if (file.find(prefix + "pixel_values") != nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(golden.recorded_pictures, read_pictures(file, prefix, T));
    }
    cases.push_back(std::move(golden));
  }
  if (cases.empty()) return data_loss("the file has no NAME.input_ids: it is not a golden file");
  return cases;
}

Status check_fits(const GoldenCase& golden, const checkpoint::ModelConfig& config) {
  if (golden.logits.shape()[1] != config.vocab_size) {
    return invalid_argument(fmt::format("{} has logits over {} ids, the model has {}", golden.name,
                                        golden.logits.shape()[1], config.vocab_size));
  }
  if (golden.hidden_states && golden.hidden_states->shape()[2] != config.hidden_size) {
    return invalid_argument(fmt::format("{} has hidden states {} wide, the model {}", golden.name,
                                        golden.hidden_states->shape()[2], config.hidden_size));
  }
  return {};
}

}  // namespace heddle::verify
