// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load_weights.h"

#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/dummy_weights.h"
#include "checkpoint/interleaved_rows.h"
#include "device/cpu_device.h"
#include "support/test_data.h"

namespace heddle::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class LoadWeightsTest : public ::testing::Test {
 protected:
  void store(std::string name, const Shape& shape, DType dtype, int64_t first = 0) {
    tensors_.push_back(testing::counting(shape, dtype, first));
    names_.push_back(std::move(name));
  }

  std::unique_ptr<const WeightSource> open() {
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < names_.size(); ++i) named.push_back({names_[i], tensors_[i].view()});
    EXPECT_TRUE(write_safetensors(folder_.path() / "model.safetensors", named).ok());
    Result<CheckpointFiles> files = CheckpointFiles::open(folder_.path());
    EXPECT_TRUE(files.ok()) << files.status().to_string();
    return std::make_unique<CheckpointFiles>(std::move(files).value());
  }

  Result<LoadedWeights> load(const std::vector<WeightSpec>& specs,
                             const LoadOptions& options = {}) {
    return load_weights(open(), specs, options);
  }

  std::string error(const std::vector<WeightSpec>& specs, const LoadOptions& options = {}) {
    return load(specs, options).status().message();
  }

  testing::TemporaryFolder folder_;
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
};

WeightSpec plain(const std::string& name, const Shape& shape) {
  return {.name = name, .shape = shape, .alternatives = {whole({name, shape})}};
}

TEST_F(LoadWeightsTest, UsesAWeightWhereItLiesOrCopiesIt) {
  store("w", {2, 3}, DType::kBf16);
  const Result<LoadedWeights> mapped = load({plain("w", {2, 3})}, {.copy_to_huge_pages = false});
  ASSERT_TRUE(mapped.ok()) << mapped.status().to_string();
  EXPECT_EQ(mapped->bytes_in_place(), 12);
  EXPECT_EQ(mapped->bytes_copied(), 0);
  EXPECT_THAT(testing::floats((*mapped)["w"]), ElementsAre(0, 1, 2, 3, 4, 5));

  const Result<LoadedWeights> copied = load({plain("w", {2, 3})});
  ASSERT_TRUE(copied.ok()) << copied.status().to_string();
  EXPECT_EQ(copied->bytes_in_place(), 0);
  EXPECT_EQ(copied->bytes_copied(), 64);
  EXPECT_THAT(testing::floats((*copied)["w"]), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(copied->num_parameters(), 6);
  EXPECT_EQ(copied->find("v"), nullptr);
}

// A device is staged for whatever it is, so that the CPU shows what a GPU would get.
TEST(LoadWeights, GivesADeviceTheBitsOfTheHostThroughSlabs) {
  std::vector<WeightSpec> specs = {plain("a", {3000, 2049}), plain("b", {4000, 2048}),
                                   plain("c", {7, 5})};  // more than the slabs of one thread
  for (const auto& [name, shape] :
       {std::pair<const char*, Shape>{"norm", {33}}, {"filters", {9, 4}}}) {
    specs.push_back(plain(name, shape));
    specs.back().dtype = WeightDType::kF32;
    specs.back().on_host = true;
  }
  specs.back().offset = 1;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    device::CpuDevice device(1);
    LoadOptions options{.dtype = dtype, .num_threads = 2};
    const Result<LoadedWeights> host =
        load_weights(std::make_unique<DummyWeights>(1), specs, options);
    options.device = &device;
    const Result<LoadedWeights> staged =
        load_weights(std::make_unique<DummyWeights>(1), specs, options);
    ASSERT_TRUE(host.ok() && staged.ok()) << staged.status().to_string();
    EXPECT_EQ(staged->run_dtype(), dtype);
    EXPECT_EQ(staged->num_parameters(), host->num_parameters());
    for (const WeightSpec& spec : specs) {
      const TensorView& want = (*host)[spec.name];
      const TensorView& got = (*staged)[spec.name];
      ASSERT_EQ(got.dtype, want.dtype);
      EXPECT_EQ(std::memcmp(got.data, want.data, static_cast<size_t>(want.num_bytes())), 0);
    }
    for (const char* name : {"norm", "filters"}) {
      EXPECT_EQ(testing::floats(staged->host(name)), testing::floats((*host)[name]));
      EXPECT_NE(staged->host(name).data, (*staged)[name].data);
      EXPECT_EQ(host->host(name).data, (*host)[name].data);
    }
    // On the host, too, where it would do no harm: tests there then see what a GPU would lack.
    EXPECT_DEATH(static_cast<void>(host->host("c")), "is not kept on the host");
    EXPECT_DEATH(static_cast<void>(staged->host("c")), "is not kept on the host");
  }
}

TEST_F(LoadWeightsTest, ADevicesWeightsHaveOneDType) {
  store("first", {2, 3}, DType::kBf16);
  store("second", {2, 3}, DType::kF32);
  device::CpuDevice device(1);
  const Result<LoadedWeights> loaded =
      load({plain("first", {2, 3}), plain("second", {2, 3})}, {.device = &device});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->run_dtype(), DType::kBf16);
  EXPECT_EQ((*loaded)["second"].dtype, DType::kBf16);
  EXPECT_THAT(testing::floats((*loaded)["second"]), ElementsAre(0, 1, 2, 3, 4, 5));
}

// Two sets of seeded weights of the same specs.
class ReplacedWeightsTest : public ::testing::Test {
 protected:
  ReplacedWeightsTest() {
    specs_ = {plain("model.layers.0.mlp.gate_proj.weight", {48, 256}), plain("b", {30, 128})};
    specs_.push_back(plain("norm", {33}));
    specs_.back().dtype = WeightDType::kF32;
    specs_.back().on_host = true;
  }

  [[nodiscard]] LoadedWeights load(uint64_t seed, const LoadOptions& options) const {
    return load_weights(std::make_unique<DummyWeights>(seed), specs_, options).value();
  }

  // Addresses and bytes of the weights.
  using Seen = std::vector<std::pair<const void*, std::vector<std::byte>>>;

  [[nodiscard]] Seen seen(const LoadedWeights& weights) const {
    Seen seen;
    const auto add = [&seen](const void* data, int64_t num_bytes) {
      const auto* const begin = static_cast<const std::byte*>(data);
      seen.emplace_back(data, std::vector<std::byte>(begin, begin + num_bytes));
    };
    for (const WeightSpec& spec : specs_) {
      const TensorView& view = weights[spec.name];
      if (view.dtype != DType::kPacked) {
        add(view.data, view.num_bytes());
        continue;
      }
      for (const quant::PackedWeight::Part& part : view.packed->parts) {
        const quant::PackedRows& rows = part.packed;
        add(rows.codes, rows.num_rows * rows.format.code_bytes());
        add(rows.scales, rows.num_scale_rows() * rows.format.scale_bytes());
      }
    }
    add(weights.host("norm").data, weights.host("norm").num_bytes());
    return seen;
  }

  static std::vector<std::vector<std::byte>> bytes(const Seen& seen) {
    std::vector<std::vector<std::byte>> all;
    for (const auto& [data, bytes] : seen) all.push_back(bytes);
    return all;
  }

  std::vector<WeightSpec> specs_;
};

TEST_F(ReplacedWeightsTest, NewNumbersStandWhereTheOldOnesStood) {
  device::CpuDevice device(1);
  const auto stream = device.create_stream().value();
  LoadOptions on_device{.dtype = DType::kBf16};
  on_device.device = &device;
  LoadOptions packed_there = on_device;
  packed_there.rounding = Rounding{.scheme = quant::Scheme::kFp8Block};
  const LoadOptions cases[] = {{},
                               {.dtype = DType::kF16},
                               {.rounding = Rounding{.scheme = quant::Scheme::kInt8}},
                               on_device,
                               packed_there};
  for (const LoadOptions& options : cases) {
    LoadedWeights used = load(1, options);
    const Seen before = seen(used);
    Seen expected;
    {
      const LoadedWeights other = load(2, options);
      expected = seen(other);
      ASSERT_NE(bytes(expected), bytes(before));
      ASSERT_TRUE(used.check_alike(other).ok());
      const Status status = used.replace(other, options.device != nullptr ? stream.get() : nullptr);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }  // nothing of the other is needed any more
    const Seen after = seen(used);
    EXPECT_EQ(bytes(after), bytes(expected));
    for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].first, before[i].first);
  }
}

TEST_F(ReplacedWeightsTest, AWeightOfAnotherFormIsNamedWithBothForms) {
  const Rounding int8{.scheme = quant::Scheme::kInt8};
  const Rounding int4{.scheme = quant::Scheme::kInt4};
  const LoadedWeights used = load(1, {});
  const LoadedWeights half = load(1, {.dtype = DType::kF16});
  const LoadedWeights bytes = load(1, {.rounding = int8});
  const LoadedWeights nibbles = load(1, {.rounding = int4});
  EXPECT_TRUE(used.check_alike(load(2, {})).ok());
  EXPECT_TRUE(bytes.check_alike(load(2, {.rounding = int8})).ok());
  EXPECT_EQ(used.check_alike(half).message(),
            "b is float16, and bfloat16 in use; to serve this checkpoint, start an engine with it");
  EXPECT_THAT(bytes.check_alike(used).message(),
              AllOf(HasSubstr("gate_proj.weight is bfloat16, and int8"), HasSubstr("in use")));
  EXPECT_THAT(nibbles.check_alike(bytes).message(),
              AllOf(HasSubstr("gate_proj.weight is int8"), HasSubstr("and int4, groups of 128")));
  EXPECT_EQ(nibbles.check_alike(bytes).code(), StatusCode::kInvalidArgument);
}

TEST_F(ReplacedWeightsTest, ALoadCanBeGivenUp) {
  const std::atomic<bool> cancelled = true;
  const auto loaded = load_weights(std::make_unique<DummyWeights>(1), specs_,
                                   {.num_threads = 2, .cancelled = &cancelled});
  EXPECT_EQ(loaded.status().code(), StatusCode::kCancelled);
}

TEST_F(LoadWeightsTest, ConvertsToTheRunsDTypeAndKeepsDelicateOnesInFp32) {
  store("w", {2, 3}, DType::kF32);
  store("A_log", {4}, DType::kBf16);
  WeightSpec decay = plain("A_log", {4});
  decay.dtype = WeightDType::kF32;
  for (const bool copy : {false, true}) {
    const Result<LoadedWeights> loaded =
        load({plain("w", {2, 3}), decay}, {.dtype = DType::kF16, .copy_to_huge_pages = copy});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ((*loaded)["w"].dtype, DType::kF16);
    EXPECT_THAT(testing::floats((*loaded)["w"]), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_EQ((*loaded)["A_log"].dtype, DType::kF32);
    EXPECT_THAT(testing::floats((*loaded)["A_log"]), ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(loaded->bytes_in_place(), 0);
  }
}

TEST_F(LoadWeightsTest, AddsOneToZeroCentredNorms) {
  store("norm", {3}, DType::kBf16);
  WeightSpec norm = plain("norm", {3});
  norm.dtype = WeightDType::kF32;
  norm.offset = 1;
  const Result<LoadedWeights> loaded = load({norm}, {.copy_to_huge_pages = false});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_THAT(testing::floats((*loaded)["norm"]), ElementsAre(1, 2, 3));
}

TEST_F(LoadWeightsTest, ConcatenatesPermutesAndReshapes) {
  store("q", {2, 2}, DType::kF32);
  store("k", {1, 2}, DType::kF32, 10);
  store("ba", {4, 1}, DType::kF32, 20);
  store("conv", {2, 1, 2}, DType::kF32, 30);
  const std::vector<WeightSpec> specs = {
      {.name = "qk",
       .shape = {3, 2},
       .alternatives = {concatenated({{"q", {2, 2}}, {"k", {1, 2}}})}},
      {.name = "ba",
       .shape = {4, 1},
       .alternatives = {permuted(
           {"ba", {4, 1}}, deinterleave_ba_rows({.num_key_heads = 2, .num_value_heads = 2}))}},
      {.name = "conv", .shape = {2, 2}, .alternatives = {whole({"conv", {2, 1, 2}})}}};
  const Result<LoadedWeights> loaded = load(specs, {.copy_to_huge_pages = false});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_THAT(testing::floats((*loaded)["qk"]), ElementsAre(0, 1, 2, 3, 10, 11));
  EXPECT_THAT(testing::floats((*loaded)["ba"]), ElementsAre(20, 22, 21, 23));
  EXPECT_THAT(testing::floats((*loaded)["conv"]), ElementsAre(30, 31, 32, 33));
  EXPECT_EQ((*loaded)["conv"].shape, Shape({2, 2}));
  EXPECT_EQ(loaded->bytes_in_place(), 16);  // only conv needs no new layout
}

WeightSpec expert_block() {
  return {.name = "gate_up",
          .shape = {2, 2, 2},
          .alternatives = {whole({"experts.gate_up_proj", {2, 2, 2}}),
                           stacked(2, {{"experts.#.gate", {1, 2}}, {"experts.#.up", {1, 2}}})}};
}

TEST_F(LoadWeightsTest, StacksPerExpertTensorsIntoOneBlock) {
  store("experts.0.gate", {1, 2}, DType::kF32, 0);
  store("experts.0.up", {1, 2}, DType::kF32, 2);
  store("experts.1.gate", {1, 2}, DType::kF32, 4);
  store("experts.1.up", {1, 2}, DType::kF32, 6);
  const Result<LoadedWeights> loaded = load({expert_block()});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_THAT(testing::floats((*loaded)["gate_up"]), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(LoadWeightsTest, TakesAnExpertBlockThatIsOneAlready) {
  store("experts.gate_up_proj", {2, 2, 2}, DType::kF32);
  const Result<LoadedWeights> loaded = load({expert_block()}, {.copy_to_huge_pages = false});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_THAT(testing::floats((*loaded)["gate_up"]), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(loaded->bytes_in_place(), 32);
}

TEST_F(LoadWeightsTest, TakesTheAlternativeOfTheStoredShape) {
  store("A_log", {3}, DType::kF32, 5);
  const auto spec = [](const Shape& first, const Shape& second) {
    return WeightSpec{.name = "decay",
                      .shape = {3},
                      .alternatives = {whole({"A_log", first}), whole({"A_log", second})}};
  };
  for (const WeightSpec& either : {spec({3}, {1, 3, 1}), spec({1, 3, 1}, {3})}) {
    const Result<LoadedWeights> loaded = load({either});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_THAT(testing::floats((*loaded)["decay"]), ElementsAre(5, 6, 7));
  }
  EXPECT_THAT(load({spec({1, 3, 1}, {3, 1})}).status().message(),
              HasSubstr("A_log is [3], the model needs [1, 3, 1]"));
}

// Two matrices [K = 2, N = 4] whose columns are (gate, up) in turn become [gate rows | up rows].
TEST_F(LoadWeightsTest, TransposesAndSeparatesWhatIsStoredInputMajor) {
  store("gate_up", {2, 2, 4}, DType::kF32);
  store("bias", {2, 4}, DType::kBf16, 20);
  const std::vector<WeightSpec> specs = {{.name = "w",
                                          .shape = {2, 4, 2},
                                          .alternatives = {{{.tensor = {"gate_up", {2, 2, 4}},
                                                             .runs = split_gate_up_rows(2, 2),
                                                             .form = RowForm::kInputMajor}}}},
                                         {.name = "b",
                                          .shape = {2, 4},
                                          .alternatives = {{{.tensor = {"bias", {2, 4}},
                                                             .runs = split_gate_up_rows(2, 2),
                                                             .form = RowForm::kElement}}},
                                          .dtype = WeightDType::kF32}};
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Result<LoadedWeights> loaded = load(specs, {.dtype = dtype, .copy_to_huge_pages = false});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_THAT(testing::floats((*loaded)["w"]),
                ElementsAre(0, 4, 2, 6, 1, 5, 3, 7, 8, 12, 10, 14, 9, 13, 11, 15));
    EXPECT_THAT(testing::floats((*loaded)["b"]), ElementsAre(20, 22, 21, 23, 24, 26, 25, 27));
    EXPECT_EQ(loaded->bytes_in_place(), 0);
  }
}

TEST_F(LoadWeightsTest, TransposesAMatrixOfManyJobs) {
  constexpr int64_t K = 1300, N = 1100;  // more than one job's elements, in rows that do not divide
  const Shape stored{K, N};
  const std::vector<WeightSpec> specs = {
      {.name = "w",
       .shape = {N, K},
       .alternatives = {{{.tensor = {"hub", stored},
                          .runs = {{.num_rows = N}},
                          .form = RowForm::kInputMajor}}}},
      {.name = "plain", .shape = stored, .alternatives = {whole({"hub", stored})}}};
  const Result<LoadedWeights> loaded =
      load_weights(std::make_unique<DummyWeights>(5), specs, {.num_threads = 2});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const std::vector<float> w = testing::floats((*loaded)["w"]);
  const std::vector<float> plain_w = testing::floats((*loaded)["plain"]);
  int64_t different = 0;
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      different += w[static_cast<size_t>(n * K + k)] != plain_w[static_cast<size_t>(k * N + n)];
    }
  }
  EXPECT_EQ(different, 0);
}

TEST_F(LoadWeightsTest, ReportsEverythingThatDoesNotFitAtOnce) {
  store("a", {2}, DType::kF32);
  store("c", {3}, DType::kF32);
  store("extra", {1}, DType::kF32);
  store("mtp.fc", {1}, DType::kF32);
  store("layers.0.rotary_emb.inv_freq", {1}, DType::kF32);
  EXPECT_EQ(
      error({plain("a", {2}), plain("b", {2}), plain("c", {2})}, {.ignored_prefixes = {"mtp."}}),
      "the checkpoint does not fit its config.json: 1 missing: b; 1 unexpected: \"extra\"; "
      "1 of another shape: c is [3], the model needs [2]");
}

// A tensor without the key that announces it, and the key without the tensor.
TEST_F(LoadWeightsTest, NamesTheKeyThatSaysWhetherThereIsSuchATensor) {
  store("a", {2}, DType::kF32);
  store("layers.0.mamba.norm.weight", {2}, DType::kF32);
  EXPECT_EQ(error({plain("a", {2})}),
            "the checkpoint does not fit its config.json: 1 unexpected: "
            "\"layers.0.mamba.norm.weight\"; keys of config.json that may decide this, where the "
            "family reads them: mamba_rms_norm");
  const std::string also = error({plain("a", {2}), plain("layers.0.mamba.norm.weight", {2}),
                                  plain("layers.0.conv1d.bias", {2}), plain("x.q_proj.bias", {2}),
                                  plain("x.v_proj.bias", {2}), plain("other", {2})});
  EXPECT_THAT(also, HasSubstr("4 missing: layers.0.conv1d.bias, x.q_proj.bias, x.v_proj.bias, "
                              "other; keys of config.json that may decide this, where the family "
                              "reads them: attention_bias (qkv_bias), "
                              "use_conv_bias (mamba_conv_bias)"));
}

TEST_F(LoadWeightsTest, NamesTheExpertThatIsMissing) {
  store("experts.0.gate", {1, 2}, DType::kF32);
  store("experts.0.up", {1, 2}, DType::kF32);
  store("experts.1.gate", {1, 2}, DType::kF32);
  EXPECT_THAT(error({expert_block()}), HasSubstr("1 missing: experts.1.up"));
}

TEST_F(LoadWeightsTest, ListsAtMostEightExamples) {
  std::vector<WeightSpec> specs;
  for (int i = 0; i < 20; ++i) specs.push_back(plain("w" + std::to_string(i), {1}));
  store("v", {1}, DType::kF32);
  EXPECT_THAT(error(specs), AllOf(HasSubstr("20 missing: w0, w1, w2, w3, w4, w5, w6, w7, ..."),
                                  Not(HasSubstr("w8"))));
}

TEST_F(LoadWeightsTest, RefusesQuantisedTensorsWhereItNeedsFloats) {
  tensors_.emplace_back(Shape{2, 2}, DType::kF8E4M3);
  names_.emplace_back("w");
  EXPECT_THAT(error({plain("w", {2, 2})}),
              HasSubstr("\"w\": it is stored as FP8, but config.json has no quantization_config"));
  WeightSpec stored = plain("w", {2, 2});
  stored.dtype = WeightDType::kStored;
  const Result<LoadedWeights> loaded = load({stored});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ((*loaded)["w"].dtype, DType::kF8E4M3);
}

TEST_F(LoadWeightsTest, ReportsProgressOnTheCallingThreadUpToTheEnd) {
  store("w", {1024, 1024, 5}, DType::kBf16);
  int64_t last = -1;
  int64_t total = 0;
  int calls = 0;
  const auto caller = std::this_thread::get_id();
  const ProgressCallback progress = [&](int64_t done, int64_t all) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_GT(done, last);
    last = done;
    total = all;
    ++calls;
  };
  ASSERT_TRUE(load({plain("w", {1024, 1024, 5})}, {.num_threads = 2, .progress = progress}).ok());
  EXPECT_EQ(total, 2 * 1024 * 1024 * 5);
  EXPECT_EQ(last, total);
  EXPECT_GE(calls, 1);
}

TEST(LoadRepositoryModelTest, LoadsShardsInPlaceAndCopied) {
  const auto folder = heddle::testing::repository_path("models/heddle-tiny");
  if (!std::filesystem::exists(folder / "config.json")) GTEST_SKIP() << "needs " << folder;
  for (const bool copy : {false, true}) {
    Result<CheckpointFiles> files = CheckpointFiles::open(folder);
    ASSERT_TRUE(files.ok()) << files.status().to_string();
    EXPECT_EQ(files->num_files(), 2);
    int64_t parameters = 0;
    std::vector<WeightSpec> specs;
    for (const std::string_view name : files->names()) {
      if (name.starts_with("mtp.")) continue;
      const TensorEntry& entry = *files->entry(name);
      parameters += entry.shape.num_elements();
      specs.push_back(plain(entry.name, entry.shape));
    }
    const Result<LoadedWeights> loaded =
        load_weights(std::make_unique<CheckpointFiles>(std::move(files).value()), specs,
                     {.copy_to_huge_pages = copy, .ignored_prefixes = {"mtp."}});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(loaded->size(), specs.size());
    EXPECT_EQ(loaded->num_parameters(), parameters);
    EXPECT_EQ(loaded->bytes_in_place(), copy ? 0 : 2 * parameters);
  }
}

TEST(LoadDummyWeightsTest, NeedsNoFilesAndAgreesHoweverManyThreadsDraw) {
  const std::vector<WeightSpec> specs = {
      {.name = "w", .shape = {1000, 3000}, .alternatives = {whole({"hub.w", {1000, 3000}})}},
      {.name = "A",
       .shape = {4},
       .alternatives = {whole({"hub.A_log", {4}})},
       .dtype = WeightDType::kF32,
       .initial = Initial::kLogDecay}};
  const Result<LoadedWeights> one =
      load_weights(std::make_unique<DummyWeights>(5), specs, {.num_threads = 1});
  const Result<LoadedWeights> four =
      load_weights(std::make_unique<DummyWeights>(5), specs, {.num_threads = 4});
  ASSERT_TRUE(one.ok()) << one.status().to_string();
  ASSERT_TRUE(four.ok());
  EXPECT_EQ((*one)["w"].dtype, DType::kBf16);
  EXPECT_EQ(testing::floats((*one)["w"]), testing::floats((*four)["w"]));
  EXPECT_EQ(testing::floats((*one)["A"]), testing::floats((*four)["A"]));
}

TEST(LoadDummyWeightsTest, RefusesAModelLargerThanTheMachineBeforeAllocating) {
  const Shape shape{int64_t{1} << 24, int64_t{1} << 20};
  const std::vector<WeightSpec> specs = {
      {.name = "w", .shape = shape, .alternatives = {whole({"w", shape})}}};
  const Status status = load_weights(std::make_unique<DummyWeights>(5), specs).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("the weights need 32768.00 GiB"));
}

}  // namespace
}  // namespace heddle::checkpoint
