// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/merge_checkpoint.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/adapter_fixture.h"
#include "checkpoint/checkpoint_files.h"

namespace heddle::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::NamedTensors;
using testing::uneven;

constexpr std::string_view kBaseConfig = R"({"model_type": "x", "torch_dtype": "bfloat16"})";

// Makes a base of four tensors and two adapters that change its weight "q.weight" [6, 4].
class MergeCheckpointTest : public ::testing::Test {
 protected:
  MergeCheckpointTest() {
    fs::create_directory(base());
    const auto write = [&](std::string_view name, std::string_view text) {
      std::ofstream(base() / name) << text;
    };
    write("config.json", kBaseConfig);
    write("tokenizer.json", "tokens");
    write("pytorch_model.bin", "old weights");
    write("pytorch_model.bin.index.json", "{}");
    tensors_.emplace("q.weight", uneven({6, 4}, 1));
    tensors_.emplace("k.weight", testing::counting({6, 4}, DType::kBf16));
    tensors_.emplace("norm.weight", testing::counting({4}, DType::kF32));
    tensors_.emplace("ids", Tensor({3}, DType::kI64));
    testing::write_tensors(base() / "model.safetensors", tensors_);
    for (uint32_t i = 0; i < 2; ++i) {
      NamedTensors adapter;
      adapter.emplace("q.lora_A.weight", uneven({2, 4}, 10 + i));
      adapter.emplace("q.lora_B.weight", uneven({6, 2}, 20 + i));
      testing::write_adapter(adapter_folder(i),
                             R"({"r": 2, "lora_alpha": 1, "target_modules": ["q"]})", adapter);
    }
  }

  [[nodiscard]] fs::path base() const { return folder_.path() / "base"; }

  [[nodiscard]] fs::path adapter_folder(uint32_t i) const {
    return folder_.path() / ("adapter" + std::to_string(i));
  }

  [[nodiscard]] MergeOptions options() const {
    return {.base = base(),
            .adapters = {{adapter_folder(0), 1}, {adapter_folder(1), -0.5}},
            .output = folder_.path() / "out/"};
  }

  // The expected q.weight of the output.
  [[nodiscard]] std::vector<float> merged() const {
    const Tensor w = uneven({6, 4}, 1);
    std::vector<double> values(w.span<float>().begin(), w.span<float>().end());
    for (uint32_t i = 0; i < 2; ++i) {
      const Tensor a = uneven({2, 4}, 10 + i), b = uneven({6, 2}, 20 + i);
      for (size_t at = 0; at < values.size(); ++at) {
        double sum = 0;
        for (size_t j = 0; j < 2; ++j) {
          sum += double{b.span<float>()[at / 4 * 2 + j]} * a.span<float>()[j * 4 + at % 4];
        }
        values[at] += 0.5 * (i == 0 ? 1 : -0.5) * sum;
      }
    }
    return {values.begin(), values.end()};
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& file : fs::directory_iterator(folder_.path())) {
      found.push_back(file.path().filename().string());
    }
    std::ranges::sort(found);
    return found;
  }

  testing::TemporaryFolder folder_;
  NamedTensors tensors_;
};

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_F(MergeCheckpointTest, SumsAdaptersAndKeepsAllElse) {
  const Result<MergeReport> report = merge_checkpoint(options(), {});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->num_changed, 1);
  EXPECT_EQ(report->num_tensors, 4);
  const fs::path out = folder_.path() / "out";
  const auto files = CheckpointFiles::open(out);
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  for (const auto& [name, tensor] : tensors_) {
    const TensorEntry& entry = *files->entry(name);
    const auto* bytes = static_cast<const std::byte*>(files->find({.name = name})->data);
    EXPECT_EQ(entry.dtype, tensor.view().dtype) << name;
    EXPECT_EQ(entry.shape, tensor.view().shape) << name;
    if (name == "q.weight") {
      EXPECT_EQ(testing::floats({bytes, DType::kF32, Shape{6, 4}}), merged());
    } else {
      EXPECT_TRUE(std::equal(bytes, bytes + tensor.view().num_bytes(),
                             static_cast<const std::byte*>(tensor.view().data)))
          << name;
    }
  }
  EXPECT_EQ(contents(out / "config.json"), kBaseConfig);
  EXPECT_EQ(contents(out / "tokenizer.json"), "tokens");
  EXPECT_FALSE(fs::exists(out / "pytorch_model.bin"));
  EXPECT_FALSE(fs::exists(out / "pytorch_model.bin.index.json"));
  EXPECT_THAT(names(), ElementsAre("adapter0", "adapter1", "base", "out"));
}

TEST_F(MergeCheckpointTest, WritesShardsAndAnotherDtype) {
  MergeOptions wanted = options();
  wanted.dtype = DType::kF16;
  wanted.shard_bytes = 1;
  const Result<MergeReport> report = merge_checkpoint(wanted, {});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->num_shards, 4);
  const auto files = CheckpointFiles::open(folder_.path() / "out");
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  EXPECT_EQ(files->num_files(), 4);
  EXPECT_EQ(files->entry("ids")->dtype, DType::kI64);
  EXPECT_EQ(files->entry("norm.weight")->dtype, DType::kF16);
  std::vector<float> rounded = merged();
  for (float& value : rounded) value = to_float(to_f16(value));
  const StoredWeight weight = *files->find({.name = "q.weight"});
  EXPECT_EQ(testing::floats({weight.data, *weight.dtype, weight.shape}), rounded);
  EXPECT_THAT(contents(folder_.path() / "out/config.json"),
              HasSubstr(R"("torch_dtype": "float16")"));
}

TEST_F(MergeCheckpointTest, LeavesNothingBehindWhenItEndsEarly) {
  const std::vector<std::string> before = names();
  for (int64_t calls_left = 0; calls_left < 3; ++calls_left) {
    MergeOptions stopped = options();
    stopped.progress = [left = calls_left](int64_t, int64_t) mutable {
      return left-- > 0 ? ok_status() : cancelled("stopped");
    };
    EXPECT_EQ(merge_checkpoint(stopped, {}).status().code(), StatusCode::kCancelled);
    EXPECT_EQ(names(), before);
  }
}

// q.weight has 24 elements. Element 23 of the base is set to `last`.
TEST_F(MergeCheckpointTest, PublishesNoModelWithNumbersThatAreNotFinite) {
  struct Case {
    double scale;
    float last;
    std::optional<DType> dtype;
    std::string message;
  };

  const std::vector<std::string> before = names();
  for (const auto& [scale, last, dtype, message] : std::vector<Case>{
           {1e300, 0, std::nullopt, "element 0 of the merged tensor \"q.weight\" is "},
           {1e300, 0, DType::kBf16, "give a smaller --scale, and check"},
           {0, 70000, DType::kF16,
            "element 23 of the merged tensor \"q.weight\" is 70000, which "
            "float16 cannot hold; write --dtype float32 or bfloat16"},
           {0, std::numeric_limits<float>::max(), DType::kBf16,
            "which bfloat16 cannot hold; write --dtype float32, or"},
           {0, std::numeric_limits<float>::infinity(), DType::kF16,
            "tensor \"q.weight\" of the base has inf at element 23; download"}}) {
    SCOPED_TRACE(message);
    tensors_.at("q.weight").span<float>()[23] = last;
    testing::write_tensors(base() / "model.safetensors", tensors_);
    MergeOptions wrong = options();
    wrong.adapters = {{adapter_folder(0), scale}};
    wrong.dtype = dtype;
    const Status status = merge_checkpoint(wrong, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_EQ(names(), before);
  }
}

// Elements are computed in pieces, by several threads; the first one in the file is named.
TEST_F(MergeCheckpointTest, NamesTheElementOfALargeTensorThatIsNotFinite) {
  constexpr int64_t kRows = 300, kColumns = 1000, kWrong = 262'144 + 5;
  Tensor large = uneven({kRows, kColumns}, 1);
  large.span<float>()[kWrong] = std::numeric_limits<float>::quiet_NaN();
  large.span<float>()[kWrong + 7] = std::numeric_limits<float>::infinity();
  tensors_.at("q.weight") = std::move(large);
  testing::write_tensors(base() / "model.safetensors", tensors_);
  NamedTensors adapter;
  adapter.emplace("q.lora_A.weight", uneven({2, kColumns}, 2));
  adapter.emplace("q.lora_B.weight", uneven({kRows, 2}, 3));
  testing::write_adapter(adapter_folder(0), R"({"r": 2, "target_modules": ["q"]})", adapter);
  MergeOptions one = options();
  one.adapters = {{adapter_folder(0), 1}};
  EXPECT_THAT(merge_checkpoint(one, {}).status().message(),
              HasSubstr("tensor \"q.weight\" of the base has nan at element 262149; download"));
}

TEST_F(MergeCheckpointTest, KeepsTheDtypesOfQuantisedModels) {
  const auto message = [&] {
    MergeOptions rounded = options();
    rounded.dtype = DType::kBf16;
    return merge_checkpoint(rounded, {}).status().message();
  };
  for (const char* const config :
       {R"({"quantization_config": {"quant_method": "awq"}})", R"({"compression_config": {}})",
        R"({"text_config": {"quantization_config": {}}})"}) {
    std::ofstream(base() / "config.json") << config;
    EXPECT_THAT(message(), HasSubstr("would round the scales of its weights; leave --dtype out"));
  }
  std::ofstream(base() / "config.json") << R"({"quantization_config": null})";
  tensors_.emplace("v.weight", Tensor({4, 4}, DType::kF8E4M3));
  testing::write_tensors(base() / "model.safetensors", tensors_);
  EXPECT_THAT(message(), HasSubstr("tensor \"v.weight\" is stored as F8_E4M3"));
  EXPECT_TRUE(merge_checkpoint(options(), {}).ok());
}

TEST_F(MergeCheckpointTest, RefusesBeforeItWrites) {
  const std::vector<std::string> before = names();
  const auto message = [&](auto&& change) {
    MergeOptions wrong = options();
    change(wrong);
    return merge_checkpoint(wrong, {}).status().message();
  };
  EXPECT_THAT(message([&](MergeOptions& o) { o.output = base(); }), HasSubstr("base exists;"));
  EXPECT_THAT(message([&](MergeOptions& o) { o.output = ""; }), HasSubstr("has no name"));
  EXPECT_THAT(message([&](MergeOptions& o) { o.output = folder_.path() / "no/out"; }),
              AllOf(HasSubstr("there is no folder"), HasSubstr("/no; create it, or write to")));
  EXPECT_THAT(message([&](MergeOptions& o) { o.adapters[1].folder = base(); }),
              HasSubstr("it is a model; name the folder of an adapter"));
  EXPECT_THAT(message([&](MergeOptions& o) {
                o.adapters[0].scale = std::numeric_limits<double>::infinity();
              }),
              HasSubstr("is inf; write a finite number"));
  EXPECT_EQ(names(), before);
}

}  // namespace
}  // namespace heddle::checkpoint
