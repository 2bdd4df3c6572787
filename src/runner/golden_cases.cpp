// SPDX-License-Identifier: Apache-2.0
#include "runner/golden_cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "runner/session.h"

namespace heddle::runner {

namespace {

constexpr double kNearTie = 1e-3;
constexpr int64_t kStrangerTokens = 29;  // of each stranger's first step

// An aligned copy: tensors may lie anywhere in the file. Error: kNotFound, kDataLoss for another
// dtype.
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

double relative_error(const float* got, const float* want, int64_t count) {
  double delta = 0;
  double norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    delta += difference * difference;
    norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  if (!std::isfinite(delta)) return INFINITY;
  return norm > 0 ? std::sqrt(delta / norm) : std::sqrt(delta);
}

struct Best {
  TokenId token = 0;
  double margin = 0;  // to the second best
};

Best best_of(const float* logits, int64_t count) {
  Best best;
  float first = logits[0];
  float second = -INFINITY;
  for (int64_t i = 1; i < count; ++i) {
    if (logits[i] > first) {
      second = first;
      first = logits[i];
      best.token = static_cast<TokenId>(i);
    } else {
      second = std::max(second, logits[i]);
    }
  }
  best.margin = static_cast<double>(first) - static_cast<double>(second);
  return best;
}

// Feeds a case and collects the logits of all its rows.
class CaseRun {
 public:
  CaseRun(ForwardPass& pass, const GoldenCase& golden, const Feeding& feeding)
      : pass_(pass), golden_(golden), feeding_(feeding) {}

  Result<CaseResult> run(std::vector<float>& first_logits) {
    const auto num_tokens = static_cast<int64_t>(golden_.ids.size());
    const auto capacity = num_tokens + static_cast<int64_t>(golden_.greedy.size()) + 1;
    HEDDLE_ASSIGN_OR_RETURN(
        Session session,
        Session::create(pass_, {.num_sequences = 3, .max_tokens = capacity + kStrangerTokens}));
    strangers_ = {golden_.ids, golden_.ids};
    std::ranges::reverse(strangers_[0]);
    CaseResult result;
    HEDDLE_RETURN_IF_ERROR(feed_prompt(session, result));
    compare_logits(result, first_logits);
    HEDDLE_RETURN_IF_ERROR(continue_greedily(session, result));
    return result;
  }

 private:
  int64_t vocab_size() const { return pass_.config().vocab_size; }

  Status feed_prompt(Session& session, CaseResult& result) {
    const auto num_tokens = static_cast<int64_t>(golden_.ids.size());
    const int64_t chunk = feeding_.chunk > 0 ? feeding_.chunk : num_tokens;
    const std::span<const TokenId> ids(golden_.ids);
    int64_t step = 0;
    for (int64_t done = 0; done < num_tokens; ++step) {
      const int64_t count = std::min(chunk, num_tokens - done);
      std::vector<Session::Feed> feeds;
      int64_t first_row = 0;
      if (feeding_.with_strangers) {
        // One stranger before, one after; prefill in the first step, decode afterwards.
        const auto length =
            static_cast<size_t>(step == 0 ? std::min(kStrangerTokens, num_tokens) : int64_t{1});
        const auto begin = static_cast<size_t>((step * 7) % num_tokens);
        const size_t size = std::min(length, static_cast<size_t>(num_tokens) - begin);
        first_row = static_cast<int64_t>(size);
        feeds.push_back({1, std::span<const TokenId>(strangers_[0]).subspan(begin, size)});
      }
      feeds.push_back({0, ids.subspan(static_cast<size_t>(done), static_cast<size_t>(count))});
      if (feeding_.with_strangers) feeds.push_back({2, ids.subspan(0, 1)});
      HEDDLE_RETURN_IF_ERROR(session.step(feeds, LogitRows::kAll));
      for (int64_t i = 0; i < count; ++i) {
        const auto* row = session.logits().row<float>(first_row + i);
        logits_.insert(logits_.end(), row, row + vocab_size());
      }
      if (golden_.hidden_states && count == num_tokens && !feeding_.with_strangers) {
        compare_hidden_states(result);
      }
      done += count;
    }
    return {};
  }

  void compare_hidden_states(CaseResult& result) const {
    const Tensor& want = *golden_.hidden_states;
    const int64_t T = want.shape()[1];
    const int64_t H = want.shape()[2];
    const auto layers =
        std::min<int64_t>(want.shape()[0], static_cast<int64_t>(pass_.num_hidden_states()));
    for (int64_t layer = 0; layer < layers; ++layer) {
      const TensorView got = pass_.hidden_state(static_cast<size_t>(layer));
      for (int64_t t = 0; t < T; ++t) {
        result.hidden_error = std::max(
            result.hidden_error,
            relative_error(got.row<float>(t), want.view().as<float>() + (layer * T + t) * H, H));
      }
    }
  }

  void compare_logits(CaseResult& result, std::vector<float>& first_logits) const {
    const int64_t V = vocab_size();
    for (int64_t row = 0; row < golden_.logits.shape()[0]; ++row) {
      const float* got = logits_.data() + row * golden_.logits_row_step * V;
      result.logits_error = std::max(result.logits_error,
                                     relative_error(got, golden_.logits.view().row<float>(row), V));
    }
    if (first_logits.empty()) first_logits = logits_;
    result.same_bits =
        first_logits.size() == logits_.size() &&
        std::memcmp(first_logits.data(), logits_.data(), logits_.size() * sizeof(float)) == 0;
  }

  // Decodes along the reference's tokens, so that one near tie does not hide what follows.
  Status continue_greedily(Session& session, CaseResult& result) {
    const int64_t V = vocab_size();
    std::vector<float> row(logits_.end() - V, logits_.end());
    for (const TokenId want : golden_.greedy) {
      const Best best = best_of(row.data(), V);
      if (best.token != want) ++(best.margin < kNearTie ? result.near_ties : result.greedy_wrong);
      const std::array<Session::Feed, 1> feed = {{{0, {&want, 1}}}};
      HEDDLE_RETURN_IF_ERROR(session.step(feed, LogitRows::kSampled));
      std::copy_n(session.logits().as<float>(), V, row.begin());
    }
    return {};
  }

  ForwardPass& pass_;
  const GoldenCase& golden_;
  const Feeding& feeding_;
  std::vector<float> logits_;
  std::array<std::vector<TokenId>, 2> strangers_;
};

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
    while ((T + golden.logits_row_step - 1) / golden.logits_row_step > logits[0])
      ++golden.logits_row_step;
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

std::vector<Feeding> all_feedings() {
  return {{.name = "whole"},
          {.name = "one at a time", .chunk = 1},
          {.name = "chunks of 17", .chunk = 17},
          {.name = "chunks of 64", .chunk = 64},
          {.name = "chunks of 65", .chunk = 65},
          {.name = "with strangers", .with_strangers = true},
          {.name = "chunks of 17 with strangers", .chunk = 17, .with_strangers = true}};
}

Result<CaseResult> check_case(ForwardPass& pass, const GoldenCase& golden, const Feeding& feeding,
                              std::vector<float>& first_logits) {
  if (golden.logits.shape()[1] != pass.config().vocab_size) {
    return invalid_argument(fmt::format("{} has logits over {} ids, the model has {}", golden.name,
                                        golden.logits.shape()[1], pass.config().vocab_size));
  }
  if (golden.hidden_states && (golden.hidden_states->shape()[2] != pass.config().hidden_size)) {
    return invalid_argument(fmt::format("{} has hidden states {} wide, the model {}", golden.name,
                                        golden.hidden_states->shape()[2],
                                        pass.config().hidden_size));
  }
  return CaseRun(pass, golden, feeding).run(first_logits);
}

}  // namespace heddle::runner
