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

std::vector<TokenId> to_ids(const Tensor& tensor) {
  return {tensor.span<TokenId>().begin(), tensor.span<TokenId>().end()};
}

}  // namespace

Result<std::vector<GoldenCase>> read_golden_cases(const checkpoint::SafetensorsFile& file) {
  constexpr std::string_view kIds = ".input_ids";
  std::vector<GoldenCase> cases;
  for (const checkpoint::TensorEntry& entry : file.tensors()) {
    if (!entry.name.ends_with(kIds)) continue;
    GoldenCase golden{.name = std::string(entry.name.substr(0, entry.name.size() - kIds.size()))};
    HEDDLE_ASSIGN_OR_RETURN(const Tensor ids, read_tensor(file, entry.name, DType::kI32));
    HEDDLE_ASSIGN_OR_RETURN(golden.logits, read_tensor(file, golden.name + ".logits", DType::kF32));
    const int64_t T = ids.num_elements();
    const Shape& logits = golden.logits.shape();
    if (T == 0 || logits.rank() != 2 || logits[0] < 1 || logits[0] > T) {
      return data_loss(fmt::format("{}: {} input_ids and logits {} do not belong together",
                                   golden.name, T, logits.to_string()));
    }
    golden.ids = to_ids(ids);
    int64_t& step = golden.logits_row_step;
    if (const std::string name = golden.name + ".logits_step"; file.find(name) != nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(const Tensor given, read_tensor(file, name, DType::kI32));
      if (given.num_elements() == 1) step = std::max(given.span<const int32_t>()[0], 1);
    }
    while ((T + step - 1) / step > logits[0]) ++step;
    if ((T + step - 1) / step != logits[0]) {
      return data_loss(fmt::format("{}: {} rows of logits are not those of every k-th of {} tokens",
                                   golden.name, logits[0], T));
    }
    if (const std::string name = golden.name + ".hidden_states"; file.find(name) != nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(golden.hidden_states, read_tensor(file, name, DType::kF32));
      const Shape& shape = golden.hidden_states->shape();
      if (shape.rank() != 3 || shape[1] != T) {
        return data_loss(fmt::format("{} {} do not fit {} tokens", name, shape.to_string(), T));
      }
    }
    if (const std::string name = golden.name + ".greedy"; file.find(name) != nullptr) {
      HEDDLE_ASSIGN_OR_RETURN(const Tensor greedy, read_tensor(file, name, DType::kI32));
      golden.greedy = to_ids(greedy);
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
