// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/merged_weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/adapter_fixture.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/convert.h"
#include "checkpoint/interleaved_rows.h"
#include "checkpoint/load_weights.h"

namespace heddle::checkpoint {
namespace {

using testing::floats;
using ::testing::HasSubstr;
using testing::NamedTensors;
using testing::uneven;

// Two stacked experts whose gate and up rows form one weight of the model.
constexpr int64_t kE = 2, kI = 3, kH = 5, kRank = 2;
constexpr double kScale = 1.75;  // lora_alpha 3.5 divided by rank 2

// The layouts that files may have, in the order of the WeightSpec's alternatives.
enum Layout { kEach, kStacked, kInterleaved, kTwoStacks, kNumLayouts };

WeightSpec experts_spec() {
  const Shape each{kI, kH};
  WeightSpec spec{.name = "w13", .shape = {kE, 2 * kI, kH}};
  spec.alternatives.push_back(
      stacked(kE, {{"experts.#.gate_proj.weight", each}, {"experts.#.up_proj.weight", each}}));
  spec.alternatives.push_back(whole({"experts.gate_up_proj", {kE, 2 * kI, kH}}));
  spec.alternatives.push_back({{.tensor = {"experts.turns_proj", {kE, kH, 2 * kI}},
                                .runs = split_gate_up_rows(kE, kI),
                                .form = RowForm::kInputMajor}});
  Assembly two;
  for (const auto& [name, first] :
       {std::pair("experts.gate_proj", int64_t{0}), {"experts.up_proj", kI}}) {
    HubPiece piece{.tensor = {name, {kE, kI, kH}}};
    for (int64_t e = 0; e < kE; ++e) {
      piece.runs.push_back(
          {.source_row = e * kI, .target_row = e * 2 * kI + first, .num_rows = kI});
    }
    two.push_back(std::move(piece));
  }
  spec.alternatives.push_back(std::move(two));
  return spec;
}

// Builds the tensors of a layout. `value(row, column)` gives the element of the model's weight.
template <typename Value>
NamedTensors tensors_of(const Assembly& assembly, Value&& value) {
  NamedTensors tensors;
  for (const HubPiece& piece : assembly) {
    Tensor tensor(piece.tensor.shape, DType::kF32);
    const bool input_major = piece.form == RowForm::kInputMajor;
    const int64_t N = piece.tensor.shape[piece.tensor.shape.rank() - 1];
    for (const RowRun& run : piece.runs) {
      for (int64_t i = 0; i < run.num_rows; ++i) {
        const int64_t row = run.source_row + i * run.source_step;
        for (int64_t k = 0; k < kH; ++k) {
          const int64_t at = input_major ? (row / N * kH + k) * N + row % N : row * kH + k;
          tensor.span<float>()[static_cast<size_t>(at)] = value(run.target_row + i, k);
        }
      }
    }
    tensors.emplace(piece.tensor.name, std::move(tensor));
  }
  return tensors;
}

// An adapter whose tensors have one layout, and the update it makes to each row of the model's
// weight.
class LayoutAdapter {
 public:
  LayoutAdapter(const Assembly& assembly, bool each_apart) : updates_(kE * 2 * kI * kH) {
    uint32_t seed = 100;
    for (const HubPiece& piece : assembly) {
      const int64_t E = each_apart ? 1 : kE;
      const int64_t N = num_rows(piece) / E;
      Tensor a = uneven({E * kRank, kH}, seed++), b = uneven({N, kRank * E}, seed++);
      for (const RowRun& run : piece.runs) {
        for (int64_t i = 0; i < run.num_rows; ++i) {
          const int64_t row = run.source_row + i * run.source_step;
          for (int64_t k = 0; k < kH; ++k) {
            double sum = 0;
            for (int64_t j = 0; j < kRank; ++j) {
              sum +=
                  double{
                      b.span<float>()[static_cast<size_t>(row % N * kRank * E + j * E + row / N)]} *
                  a.span<float>()[static_cast<size_t>((row / N * kRank + j) * kH + k)];
            }
            updates_[static_cast<size_t>((run.target_row + i) * kH + k)] = kScale * sum;
          }
        }
      }
      add(piece.tensor.name, each_apart, std::move(a), std::move(b));
    }
  }

  [[nodiscard]] double update(int64_t row, int64_t column) const {
    return updates_[static_cast<size_t>(row * kH + column)];
  }

  [[nodiscard]] std::filesystem::path write(const std::filesystem::path& folder) const {
    return testing::write_adapter(
        folder,
        fmt::format(R"({{"r": 2, "lora_alpha": 3.5, "target_parameters": [{}]}})", parameters_),
        tensors_);
  }

 private:
  void add(const std::string& name, bool each_apart, Tensor a, Tensor b) {
    std::string prefix;
    if (each_apart) {
      prefix = name.substr(0, name.size() - std::string_view("weight").size());
      // All tensors are parameters of one module; the last one has the outermost wrapper.
    } else {
      parameters_ += (parameters_.empty() ? "\"" : ", \"") + name + "\"";
      prefix = "experts.";
      if (name == "experts.gate_proj") prefix += "base_layer.";
    }
    tensors_.emplace(prefix + "lora_A.weight", std::move(a));
    tensors_.emplace(prefix + "lora_B.weight", std::move(b));
  }

  std::vector<double> updates_;
  std::string parameters_;
  NamedTensors tensors_;
};

class MergedWeightsTest : public ::testing::Test {
 protected:
  std::unique_ptr<const WeightSource> base(const NamedTensors& tensors) {
    const auto folder = folder_.path() / fmt::format("base{}", num_bases_++);
    std::filesystem::create_directory(folder);
    testing::write_tensors(folder / "model.safetensors", tensors);
    return std::make_unique<CheckpointFiles>(CheckpointFiles::open(folder).value());
  }

  std::filesystem::path linear_adapter(const std::string& module, int64_t N, int64_t K,
                                       std::string_view config = R"({"r": 2, "lora_alpha": 3.5})") {
    NamedTensors tensors;
    tensors.emplace(module + ".lora_A.weight", uneven({kRank, K}, 1));
    tensors.emplace(module + ".lora_B.weight", uneven({N, kRank}, 2));
    return testing::write_adapter(folder_.path() / "adapter", config, tensors);
  }

  static Result<std::unique_ptr<const MergedWeights>> merge(
      std::unique_ptr<const WeightSource> base, std::span<const WeightSpec> specs,
      const std::filesystem::path& adapter, double scale = 1) {
    std::vector<ScaledAdapter> adapters;
    HEDDLE_ASSIGN_OR_RETURN(AdapterFiles files, AdapterFiles::open(adapter));
    adapters.push_back({.files = std::move(files), .scale = scale});
    return MergedWeights::create(std::move(base), specs, std::move(adapters));
  }

  testing::TemporaryFolder folder_;
  int num_bases_ = 0;
};

TEST_F(MergedWeightsTest, AnAdapterInAnyLayoutMeetsABaseInAnyLayout) {
  const std::vector<WeightSpec> specs = {experts_spec()};
  const Tensor original = uneven({kE * 2 * kI, kH}, 7);
  const auto weight = [&](int64_t row, int64_t column) {
    return original.span<float>()[static_cast<size_t>(row * kH + column)];
  };
  for (size_t named = 0; named < kNumLayouts; ++named) {
    const LayoutAdapter adapter(specs[0].alternatives[named], named == kEach);
    const auto folder = adapter.write(folder_.path() / fmt::format("adapter{}", named));
    for (size_t stored = 0; stored < kNumLayouts; ++stored) {
      SCOPED_TRACE(fmt::format("adapter of layout {}, base of layout {}", named, stored));
      auto merged = merge(base(tensors_of(specs[0].alternatives[stored], weight)), specs, folder);
      ASSERT_TRUE(merged.ok()) << merged.status().to_string();
      const auto loaded = load_weights(std::move(*merged), specs);
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      const std::vector<float> values = floats((*loaded)["w13"]);
      for (int64_t row = 0; row < kE * 2 * kI; ++row) {
        for (int64_t k = 0; k < kH; ++k) {
          EXPECT_EQ(values[static_cast<size_t>(row * kH + k)],
                    static_cast<float>(weight(row, k) + adapter.update(row, k)));
        }
      }
    }
  }
}

// An adapter of stacked experts changes rows of every expert, so none of them may be skipped.
TEST_F(MergedWeightsTest, NamesAnExpertThatTheBaseLacksOrHasQuantised) {
  const std::vector<WeightSpec> specs = {experts_spec()};
  const auto zero = [](int64_t, int64_t) { return 0.0f; };
  const auto message = [&](Layout layout, const NamedTensors& stored) {
    const LayoutAdapter adapter(specs[0].alternatives[layout], layout == kEach);
    const auto folder = adapter.write(folder_.path() / fmt::format("adapter{}", num_bases_));
    return merge(base(stored), specs, folder).status().message();
  };
  for (const Layout layout : {kStacked, kInterleaved, kTwoStacks}) {
    SCOPED_TRACE(layout);
    NamedTensors stored = tensors_of(specs[0].alternatives[kEach], zero);
    stored.erase("experts.1.gate_proj.weight");
    EXPECT_THAT(message(layout, stored),
                HasSubstr("module \"experts.1.gate_proj\" has no weight in the base"));
    stored.emplace("experts.1.gate_proj.qweight", Tensor({kI, kH}, DType::kI32));
    EXPECT_THAT(message(layout, stored),
                HasSubstr("\"experts.1.gate_proj\" is quantised in the base, which has "
                          "\"experts.1.gate_proj.qweight\""));
    NamedTensors quantised;
    quantised.emplace("experts.0.gate_proj.qweight", Tensor({kI, kH}, DType::kI32));
    EXPECT_THAT(message(layout, quantised), HasSubstr("\"experts.0.gate_proj\" is quantised"));
  }
  // A missing stack is an error only for adapters that change its rows.
  NamedTensors gates = tensors_of(specs[0].alternatives[kTwoStacks], zero);
  gates.erase("experts.up_proj");
  EXPECT_THAT(message(kEach, gates), HasSubstr("\"experts.up_proj\" has no weight in the base"));
  NamedTensors update;
  update.emplace("experts.1.gate_proj.lora_A.weight", uneven({kRank, kH}, 1));
  update.emplace("experts.1.gate_proj.lora_B.weight", uneven({kI, kRank}, 2));
  const auto folder = testing::write_adapter(folder_.path() / "gate", R"({"r": 2})", update);
  const auto merged = merge(base(gates), specs, folder);
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ((*merged)->num_changed(), 1);
}

// A weight [N, K] with two low-rank terms, in every dtype, read in pieces of any size.
TEST_F(MergedWeightsTest, ReadsTheSameNumbersInPiecesOfAnySize) {
  constexpr int64_t N = 37, K = 151;
  const std::string name = "model.layers.0.self_attn.q_proj";
  NamedTensors stored;
  stored.emplace(name + ".weight", uneven({N, K}, 3));
  const auto merged = merge(base(stored), {}, linear_adapter(name, N, K), 0.5);
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  const StoredWeight weight = *(*merged)->find({.name = name + ".weight", .shape = {}});
  EXPECT_EQ(weight.data, nullptr);
  const Tensor w = uneven({N, K}, 3), a = uneven({kRank, K}, 1), b = uneven({N, kRank}, 2);
  std::vector<float> expected;
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      double sum = 0;
      for (int64_t j = 0; j < kRank; ++j) {
        sum += double{b.span<float>()[static_cast<size_t>(n * kRank + j)]} *
               a.span<float>()[static_cast<size_t>(j * K + k)];
      }
      const double value = w.span<float>()[static_cast<size_t>(n * K + k)] + kScale * 0.5 * sum;
      expected.push_back(static_cast<float>(value));
    }
  }
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    std::vector<std::byte> whole(static_cast<size_t>(bytes_of(dtype, N * K)));
    convert_elements(expected.data(), DType::kF32, whole.data(), dtype, N * K);
    for (const int64_t piece : {int64_t{1}, int64_t{150}, int64_t{1000}, N * K}) {
      std::vector<std::byte> read(whole.size());
      for (int64_t first = 0; first < N * K; first += piece) {
        (*merged)->read(weight, first, std::min(piece, N * K - first), dtype,
                        read.data() + bytes_of(dtype, first));
      }
      EXPECT_TRUE(read == whole) << to_string(dtype) << " in pieces of " << piece;
    }
  }
}

// Covers DoRA, an embedding, a replaced tensor, biases and rows of single tokens.
TEST_F(MergedWeightsTest, MergesAdaptersBeyondPlainLora) {
  constexpr int64_t N = 5, K = 4100;  // a row is longer than WeightChange computes at once
  const Tensor w = uneven({N, K}, 3), a = uneven({kRank, K}, 1), b = uneven({N, kRank}, 2);
  const Tensor lengths = uneven({N}, 4), bias = uneven({N}, 5), added = uneven({N}, 6);
  const Tensor table = uneven({7, 3}, 7), of_rows = uneven({kRank, 7}, 8);
  const Tensor of_columns = uneven({3, kRank}, 9), new_row = uneven({1, 3}, 10);
  NamedTensors stored, adapter;
  stored.emplace("q.weight", uneven({N, K}, 3));
  stored.emplace("q.bias", uneven({N}, 5));
  stored.emplace("k.bias", uneven({N}, 5));
  stored.emplace("embed.weight", uneven({7, 3}, 7));
  stored.emplace("wte.weight", uneven({7, 3}, 7));
  adapter.emplace("q.lora_A.weight", uneven({kRank, K}, 1));
  adapter.emplace("q.lora_B.weight", uneven({N, kRank}, 2));
  adapter.emplace("q.lora_magnitude_vector", uneven({N}, 4));
  adapter.emplace("q.lora_B.bias", uneven({N}, 6));
  adapter.emplace("k.bias", uneven({N}, 6));
  adapter.emplace("embed.lora_embedding_A", uneven({kRank, 7}, 8));
  adapter.emplace("embed.lora_embedding_B", uneven({3, kRank}, 9));
  adapter.emplace("wte.token_adapter.trainable_tokens_delta", uneven({1, 3}, 10));
  const WeightSpec specs[] = {
      {.name = "embed_tokens", .shape = {7, 3}, .alternatives = {whole({"embed.weight", {7, 3}})}},
      {.name = "lm_head", .shape = {7, 3}, .alternatives = {whole({"head.weight", {7, 3}})}}};
  const auto folder = testing::write_adapter(
      folder_.path() / "adapter",
      R"({"r": 2, "lora_alpha": 3.5, "trainable_token_indices": {"wte": [4]}})", adapter);
  const auto merged = merge(base(stored), specs, folder);
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ((*merged)->num_changed(), 5);
  const auto read = [&](std::string_view name) {
    const StoredWeight weight = *(*merged)->find({.name = name, .shape = {}});
    std::vector<float> values(static_cast<size_t>(weight.shape.num_elements()));
    constexpr int64_t kPiece = 5000;  // pieces begin and end within rows
    for (int64_t first = 0; first < std::ssize(values); first += kPiece) {
      (*merged)->read(weight, first, std::min(kPiece, std::ssize(values) - first), DType::kF32,
                      values.data() + first);
    }
    return values;
  };
  const auto at = [](const Tensor& tensor, int64_t row, int64_t column) {
    return double{tensor.span<float>()[static_cast<size_t>(row * tensor.view().shape[1] + column)]};
  };
  const std::vector<float> q = read("q.weight"), q_bias = read("q.bias"), k_bias = read("k.bias");
  for (int64_t n = 0; n < N; ++n) {
    const auto index = static_cast<size_t>(n);
    std::vector<double> row;
    double squares = 0;
    for (int64_t k = 0; k < K; ++k) {
      const double update = at(b, n, 0) * at(a, 0, k) + at(b, n, 1) * at(a, 1, k);
      row.push_back(at(w, n, k) + kScale * update);
      squares += row.back() * row.back();
    }
    for (size_t k = 0; k < row.size(); ++k) {
      const double expected = double{lengths.span<float>()[index]} / std::sqrt(squares) * row[k];
      EXPECT_FLOAT_EQ(q[index * row.size() + k], static_cast<float>(expected));
    }
    EXPECT_EQ(q_bias[index], static_cast<float>(double{bias.span<float>()[index]} +
                                                kScale * double{added.span<float>()[index]}));
    EXPECT_EQ(k_bias[index], added.span<float>()[index]);
  }
  const std::vector<float> embed = read("embed.weight"), wte = read("wte.weight");
  for (int64_t row = 0; row < 7; ++row) {
    for (int64_t k = 0; k < 3; ++k) {
      const double update =
          at(of_rows, 0, row) * at(of_columns, k, 0) + at(of_rows, 1, row) * at(of_columns, k, 1);
      const auto index = static_cast<size_t>(row * 3 + k);
      EXPECT_EQ(embed[index], static_cast<float>(at(table, row, k) + kScale * update));
      EXPECT_EQ(double{wte[index]}, row == 4 ? at(new_row, 0, k) : at(table, row, k));
    }
  }
}

TEST_F(MergedWeightsTest, RefusesAdaptersThatCannotBeMerged) {
  struct Case {
    std::string tensor;
    Shape shape;
    std::string message;
  };

  for (const auto& [tensor, shape, message] : std::vector<Case>{
           {"q.bias", {6}, "module \"q\" has a bias in the adapter, but none in the base"},
           {"q.lora_B.bias", {6}, "module \"q\" has a bias in the adapter"},
           {"k.weight", {6, 4}, "module \"k\" has no weight in the base"},
           {"lm_head.weight", {9, 4}, "the base's head is its embedding"},
           {"backbone.embeddings.weight", {9, 4}, "is saved whole, and is also the base's head"},
           {"backbone.embeddings.lora_embedding_A", {kRank, 9}, "is also the base's head (tie_"},
           {"backbone.embeddings.token_adapter.trainable_tokens_delta",
            {1, 4},
            "but the base stores \"lm_head.weight\", too; remove this tensor"},
           {"other.weight",
            {7, 4},
            "\"other.weight\" of the adapter is [7, 4], the base's \"other.weight\""},
           {"other.token_adapter.trainable_tokens_delta", {2, 4}, "has 1 tokens"},
           {"other.token_adapter.trainable_tokens_delta", {1, 4}, "has token 9, the base has 9"}}) {
    NamedTensors stored, adapter;
    stored.emplace("q.weight", uneven({6, 4}, 1));
    stored.emplace("other.weight", uneven({9, 4}, 1));
    stored.emplace("backbone.embeddings.weight", uneven({9, 4}, 1));
    stored.emplace("lm_head.weight", uneven({9, 4}, 1));
    adapter.emplace("q.lora_A.weight", uneven({kRank, 4}, 1));
    adapter.emplace("q.lora_B.weight", uneven({6, kRank}, 2));
    adapter.emplace(tensor, uneven(shape, 3));
    if (tensor.ends_with("embedding_A")) {
      adapter.emplace("backbone.embeddings.lora_embedding_B", uneven({4, kRank}, 4));
    }
    const WeightSpec table{.name = "embed_tokens",
                           .shape = {9, 4},
                           .alternatives = {whole({"backbone.embeddings.weight", {9, 4}})}};
    const auto folder = testing::write_adapter(
        folder_.path() / "adapter",
        R"({"r": 2, "trainable_token_indices": {"other": [9], "embeddings": [3]}})", adapter);
    EXPECT_THAT(merge(base(stored), std::span(&table, 1), folder).status().message(),
                HasSubstr(message))
        << tensor;
  }
}

TEST_F(MergedWeightsTest, RefusesAScaleOrASecondAdapterForChangesThatAreNotSums) {
  NamedTensors dora;
  dora.emplace("q.lora_A.weight", uneven({kRank, 4}, 1));
  dora.emplace("q.lora_B.weight", uneven({6, kRank}, 2));
  dora.emplace("q.lora_magnitude_vector", uneven({6}, 3));
  const auto first = testing::write_adapter(folder_.path() / "dora", R"({"r": 2})", dora);
  const auto second = linear_adapter("q", 6, 4);
  for (const bool dora_first : {true, false}) {
    NamedTensors stored;
    stored.emplace("q.weight", uneven({6, 4}, 1));
    std::vector<ScaledAdapter> adapters;
    for (const bool is_dora : {dora_first, !dora_first}) {
      adapters.push_back({.files = AdapterFiles::open(is_dora ? first : second).value()});
    }
    const Status status = MergedWeights::create(base(stored), {}, std::move(adapters)).status();
    EXPECT_THAT(status.message(), HasSubstr("tensor \"q.weight\" is changed by two adapters"));
  }
  NamedTensors stored;
  stored.emplace("q.weight", uneven({6, 4}, 1));
  EXPECT_THAT(
      merge(base(stored), {}, first, 0.5).status().message(),
      HasSubstr("the scale is 0.5, but the adapter replaces numbers of tensor \"q.weight\""));
}

TEST_F(MergedWeightsTest, FindsModulesUnderTheOtherNamesOfTheirModels) {
  const WeightSpec spec{.name = "q",
                        .shape = {3, 4},
                        .alternatives = {whole({"model.layers.0.mlp.gate.weight", {3, 4}})}};
  for (const std::string module :
       {"model.layers.0.mlp.gate", "model.language_model.layers.0.mlp.gate",
        "language_model.model.layers.0.mlp.gate", "model.layers.0.block_sparse_moe.gate"}) {
    NamedTensors stored;
    stored.emplace("model.layers.0.mlp.gate.weight", uneven({3, 4}, 1));
    const auto merged = merge(base(stored), std::span(&spec, 1), linear_adapter(module, 3, 4));
    ASSERT_TRUE(merged.ok()) << merged.status().to_string();
    EXPECT_TRUE((*merged)->changes("model.layers.0.mlp.gate.weight"));
    EXPECT_EQ((*merged)->num_changed(), 1);
  }
}

TEST_F(MergedWeightsTest, NamesTheModuleThatDoesNotFit) {
  const auto message = [&](NamedTensors stored, const std::filesystem::path& adapter) {
    return merge(base(stored), {}, adapter).status().message();
  };
  const auto with = [](const std::string& name, Tensor tensor) {
    NamedTensors tensors;
    tensors.emplace(name, std::move(tensor));
    return tensors;
  };
  const auto adapter =
      linear_adapter("a.q_proj", 6, 4, R"({"r": 2, "base_model_name_or_path": "B"})");
  EXPECT_THAT(message(with("a.k_proj.weight", uneven({6, 4}, 1)), adapter),
              HasSubstr("module \"a.q_proj\" has no weight in the base; merge into the adapter's "
                        "own base, \"B\""));
  EXPECT_THAT(message(with("a.q_proj.weight", uneven({8, 4}, 1)), adapter),
              HasSubstr("are [2, 4] and [6, 2], but the base's weight has N = 8 and K = 4"));
  EXPECT_THAT(message(with("a.q_proj.weight", uneven({6}, 1)), adapter),
              HasSubstr("is a tensor [6] in the base"));
  EXPECT_THAT(message(with("a.q_proj.weight", Tensor({6, 4}, DType::kF8E4M3)), adapter),
              HasSubstr("is stored as F8_E4M3; merge into the model before it was quantised"));
  EXPECT_THAT(message(with("a.q_proj.qweight", Tensor({6, 4}, DType::kI32)), adapter),
              HasSubstr("module \"a.q_proj\" is quantised in the base"));
  EXPECT_THAT(message(with("a.q_proj.weight", uneven({6, 4}, 1)),
                      linear_adapter("a.q_proj", 6, 4, R"({"r": 3})")),
              HasSubstr("has 2 rows, but adapter_config.json gives it rank 3"));
  EXPECT_THAT(message(with("lm_head.weight", uneven({6, 4}, 1)), linear_adapter("lm_head", 6, 4)),
              HasSubstr("the base's head is its embedding"));
}

TEST_F(MergedWeightsTest, ABaseWeightSavedWithTheAdapterMustEqualTheBase) {
  NamedTensors tensors;
  tensors.emplace("head.lora_A.weight", uneven({2, 4}, 1));
  tensors.emplace("head.lora_B.weight", uneven({6, 2}, 2));
  for (const uint32_t seed : {3u, 4u}) {
    NamedTensors stored;
    stored.emplace("head.weight", uneven({6, 4}, 3));
    tensors.insert_or_assign("head.base_layer.weight", uneven({6, 4}, seed));
    const auto folder = testing::write_adapter(folder_.path() / "adapter", R"({"r": 2})", tensors);
    const Status status = merge(base(stored), {}, folder).status();
    EXPECT_EQ(status.ok(), seed == 3) << status.to_string();
    if (seed != 3) {
      EXPECT_THAT(status.message(),
                  HasSubstr("\"head.base_layer.weight\" differs from the base's"));
    }
  }
}

}  // namespace
}  // namespace heddle::checkpoint
