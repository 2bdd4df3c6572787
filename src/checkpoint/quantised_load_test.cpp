// SPDX-License-Identifier: Apache-2.0
// Quantised checkpoints: what is recognised, what is refused and with which words.
#include <bit>
#include <cstring>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/dummy_weights.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/model_config.h"
#include "checkpoint/quantise_checkpoint.h"
#include "device/cpu_device.h"
#include "quant/dequantise.h"
#include "quant/small_floats.h"
#include "support/test_data.h"

namespace heddle::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

QuantizationConfig config_of(const char* text) {
  const Result<QuantizationConfig> config = parse_quantization_config(nlohmann::json::parse(text));
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.ok() ? *config : QuantizationConfig{};
}

std::string config_error(const char* text) {
  return parse_quantization_config(nlohmann::json::parse(text)).status().message();
}

constexpr const char* kAwq =
    R"({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": true, "version": "gemm"})";
constexpr const char* kFp8 = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
constexpr const char* kModelOpt =
    R"({"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*.mlp.gate"]})";
constexpr const char* kNvfp4Packed =
    R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
            "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}}}})";

// Other tools' names for the same layouts.
TEST(QuantizationNames, AreReadAsTheFormatsTheyMean) {
  const auto method = [](const char* text) { return config_of(text).method; };
  EXPECT_EQ(method(R"({"quant_method": "gptqmodel", "bits": 4})"), QuantMethod::kGptq);
  EXPECT_EQ(method(R"({"quant_method": "auto_gptq", "bits": 8})"), QuantMethod::kGptq);
  EXPECT_EQ(method(R"({"quant_method": "AutoAWQ", "bits": 4})"), QuantMethod::kAwq);
  EXPECT_EQ(method(R"({"quant_method": "auto-round", "bits": 4})"), QuantMethod::kGptq);
  EXPECT_EQ(method(R"({"quant_method": "compressed_tensors", "config_groups": {}})"),
            QuantMethod::kCompressedTensors);
  EXPECT_EQ(method(R"({"quant_method": "intel/auto-round", "bits": 4,
                       "packing_format": "auto_round:auto_awq"})"),
            QuantMethod::kAwq);
  for (const char* const packing : {"auto_round:gptq:exllamav2", "gptq:marlin", "auto"}) {
    EXPECT_EQ(method(fmt::format(R"({{"quant_method": "auto_round", "bits": 4, "backend": "{}"}})",
                                 packing)
                         .c_str()),
              QuantMethod::kGptq);
  }
  EXPECT_EQ(method(R"({"quant_method": "auto-round", "bits": 4, "packing_format": "awq:marlin"})"),
            QuantMethod::kAwq);
  const QuantizationConfig round = config_of(
      R"({"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4,
          "group_size": 64, "sym": true, "data_type": "int", "batch_size": 8,
          "extra_config": {"lm_head": {"bits": 16}, "model.layers.0.mlp.up_proj": {"bits": 8},
                           "model.layers.*.self_attn.k_proj": {"bits": 16}}})");
  EXPECT_EQ(round.group_size, 64);
  EXPECT_TRUE(round.symmetric);
  EXPECT_TRUE(round.ignores("lm_head"));
  EXPECT_TRUE(round.ignores("model.layers.7.self_attn.k_proj"));
  EXPECT_FALSE(round.ignores("model.layers.7.self_attn.q_proj"));
  EXPECT_EQ(round.bits_of("model.layers.0.mlp.up_proj"), 8);
  EXPECT_EQ(round.bits_of("model.layers.0.mlp.up_proj_2"), 4);
  EXPECT_EQ(round.bits_of("model.layers.1.mlp.up_proj"), 4);
  EXPECT_FALSE(
      config_of(R"({"quant_method": "gptq", "bits": 4, "format": "gptq_v2"})").zeros_less_one);
  EXPECT_THAT(config_error(R"({"quant_method": "auto-round", "bits": 4,
                               "packing_format": "auto_round:exllamav2"})"),
              AllOf(HasSubstr("\"auto_round:exllamav2\""), HasSubstr("auto_round:auto_gptq")));
  EXPECT_THAT(config_error(R"({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp"})"),
              HasSubstr("data_type \"mx_fp\""));
  EXPECT_THAT(config_error(R"({"quant_method": "bitsandbytes"})"),
              AllOf(HasSubstr("quant_method is \"bitsandbytes\"; served are awq, gptq"),
                    HasSubstr("auto-round")));
}

class QuantisedLoadTest : public ::testing::Test {
 protected:
  void store(std::string name, const Shape& shape, DType dtype, float value = 0) {
    Tensor tensor(shape, dtype);
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      const auto index = static_cast<size_t>(i);
      if (dtype == DType::kF32) tensor.span<float>()[index] = value;
      if (dtype == DType::kF16) tensor.span<F16>()[index] = to_f16(value);
      if (dtype == DType::kBf16) tensor.span<Bf16>()[index] = to_bf16(value);
      if (dtype == DType::kF8E4M3) tensor.span<uint8_t>()[index] = quant::float_to_e4m3(value);
      if (dtype == DType::kU8) tensor.span<uint8_t>()[index] = static_cast<uint8_t>(value);
      if (dtype == DType::kI8) tensor.span<int8_t>()[index] = static_cast<int8_t>(value);
      if (dtype == DType::kI32) tensor.span<uint32_t>()[index] = 0x99999999u;
    }
    tensors_.push_back(std::move(tensor));
    names_.push_back(std::move(name));
  }

  // An AWQ module of [N, 64]: q = 9 and z = 9 everywhere.
  void store_awq(const std::string& module, int64_t N, float scale = 1) {
    store(module + ".qweight", {64, N / 8}, DType::kI32);
    store(module + ".qzeros", {2, N / 8}, DType::kI32);
    store(module + ".scales", {2, N}, DType::kF16, scale);
  }

  // An NVFP4 module of [N, 64]: 1.5 times a scale of 2, and the factor.
  void store_nvfp4(const std::string& module, int64_t N, float factor, bool divided = false) {
    store(module + (divided ? ".weight_packed" : ".weight"), {N, 32}, DType::kU8, 0x33);
    store(module + ".weight_scale", {N, 4}, DType::kF8E4M3, 2);
    store(module + (divided ? ".weight_global_scale" : ".weight_scale_2"), {}, DType::kF32, factor);
    store(module + (divided ? ".input_global_scale" : ".input_scale"), {}, DType::kF32, 7);
  }

  Result<LoadedWeights> load(const std::vector<WeightSpec>& specs, const char* config,
                             const LoadOptions& base = {}) {
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < names_.size(); ++i) named.push_back({names_[i], tensors_[i].view()});
    EXPECT_TRUE(write_safetensors(folder_.path() / "model.safetensors", named).ok());
    Result<CheckpointFiles> files = CheckpointFiles::open(folder_.path());
    EXPECT_TRUE(files.ok()) << files.status().to_string();
    LoadOptions options = base;
    if (config != nullptr) {
      config_ = config_of(config);
      options.quantization = &config_;
    }
    return load_weights(std::make_unique<CheckpointFiles>(std::move(files).value()), specs,
                        options);
  }

  std::string error(const std::vector<WeightSpec>& specs, const char* config) {
    return load(specs, config).status().message();
  }

  testing::TemporaryFolder folder_;
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
  QuantizationConfig config_;
};

WeightSpec fused(const std::vector<std::string>& modules, int64_t N, int64_t K) {
  std::vector<HubTensor> tensors;
  for (const std::string& module : modules) tensors.push_back({module + ".weight", {N, K}});
  return {.name = "w",
          .shape = {N * static_cast<int64_t>(modules.size()), K},
          .alternatives = {concatenated(tensors)}};
}

float element(const TensorView& weight, int64_t row, int64_t k) {
  for (const auto& part : weight.packed->parts) {
    if (row >= part.first_row + part.num_rows) continue;
    if (part.plain.data != nullptr) {
      return to_float(part.plain.row<Bf16>(row - part.first_row)[k]);
    }
    return quant::dequantised_element(part.packed, row - part.first_row, k);
  }
  return -1;
}

// The CPU as a device whose memory is nearly full.
class SmallDevice final : public device::Device {
 public:
  [[nodiscard]] device::DeviceKind kind() const override { return cpu_.kind(); }

  [[nodiscard]] std::string name() const override { return "a small device"; }

  [[nodiscard]] bool can_capture() const override { return false; }

  [[nodiscard]] int64_t available_memory_bytes() const override { return 1 << 20; }

  [[nodiscard]] int64_t total_memory_bytes() const override { return 1 << 20; }

  [[nodiscard]] int64_t release_granule_bytes() const override { return 0; }

  Status make_current() override { return {}; }

  Result<device::Buffer> allocate(int64_t num_bytes) override { return cpu_.allocate(num_bytes); }

  Result<device::Buffer> allocate_pinned(int64_t num_bytes) override {
    return cpu_.allocate(num_bytes);
  }

  Result<std::unique_ptr<device::Stream>> create_stream() override { return cpu_.create_stream(); }

  Result<std::unique_ptr<device::Event>> create_event() override { return cpu_.create_event(); }

 private:
  device::CpuDevice cpu_{1};
};

TEST_F(QuantisedLoadTest, SaysThatWeightsAreNotQuantisedWhereTheConfigSaysSo) {
  store("m.weight", {8, 64}, DType::kBf16, 1);
  const auto log_with = [&](const char* config, const LoadOptions& options = {}) {
    ::testing::internal::CaptureStderr();
    const auto loaded = load({fused({"m"}, 8, 64)}, config, options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return ::testing::internal::GetCapturedStderr();
  };
  for (const char* const config :
       {R"({"quant_method": "awq", "bits": 4})", R"({"quant_method": "fp8"})",
        R"({"quant_method": "gptq", "bits": 4})",
        R"({"quant_method": "compressed-tensors", "config_groups": {}})"}) {
    EXPECT_THAT(log_with(config),
                HasSubstr("none of those that are read is: tensor \"m.weight\" is stored as BF16"));
  }
  EXPECT_EQ(log_with(nullptr), "");
  EXPECT_EQ(log_with(R"({"quant_method": "fp8"})", {.ignored_prefixes = {""}}), "")
      << "only a part of the checkpoint is loaded";
  EXPECT_EQ(log_with(R"({"quant_method": "compressed-tensors",
                         "kv_cache_scheme": {"num_bits": 8, "type": "float"}})"),
            "");
  EXPECT_EQ(log_with(R"({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"})"), "");
}

// The bytes of all arrays of a packed weight.
std::vector<std::byte> packed_bytes(const TensorView& weight) {
  std::vector<std::byte> bytes;
  const auto add = [&bytes](const void* data, int64_t num_bytes) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + num_bytes);
  };
  for (const quant::PackedWeight::Part& part : weight.packed->parts) {
    if (part.plain.data != nullptr) {
      add(part.plain.data, part.plain.num_bytes());
      continue;
    }
    const quant::PackedRows& rows = part.packed;
    add(rows.codes, rows.num_rows * rows.format.code_bytes());
    add(rows.scales, rows.num_scale_rows() * rows.format.scale_bytes());
    if (rows.zeros != nullptr) add(rows.zeros, rows.num_rows * rows.format.num_groups());
  }
  EXPECT_EQ(std::ssize(bytes), quant::stored_bytes(weight));
  return bytes;
}

// Where weights are dequantised while they load, the arena is larger.
TEST_F(QuantisedLoadTest, ADeviceGetsTheCodesAndScalesOfTheHost) {
  const std::vector<WeightSpec> specs = {fused({"a.q_proj", "a.k_proj"}, 300, 256)};
  for (const auto scheme : {quant::Scheme::kInt4, quant::Scheme::kInt8, quant::Scheme::kFp8,
                            quant::Scheme::kFp8Block}) {
    SCOPED_TRACE(static_cast<int>(scheme));
    device::CpuDevice device(1);
    LoadOptions options{.dtype = DType::kBf16, .num_threads = 1};
    options.rounding = Rounding{.scheme = scheme};
    const Result<LoadedWeights> host =
        load_weights(std::make_unique<DummyWeights>(1), specs, options);
    options.device = &device;
    ::testing::internal::CaptureStderr();
    const Result<LoadedWeights> sent =
        load_weights(std::make_unique<DummyWeights>(1), specs, options);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("1 quantised weights stay packed: 0.00 GiB, 0.00 as bfloat16"));
    ASSERT_TRUE(host.ok() && sent.ok()) << sent.status().to_string();
    ASSERT_EQ((*sent)["w"].dtype, DType::kPacked);
    EXPECT_EQ(packed_bytes((*sent)["w"]), packed_bytes((*host)["w"]));
    EXPECT_LE(sent->bytes_copied(), quant::stored_bytes((*sent)["w"]) + 3 * 64);
    EXPECT_LT(sent->bytes_copied(), 600 * 256 * 3 / 2);
    EXPECT_EQ(sent->bytes_copied(), host->bytes_copied());
  }
}

// Modules of every layout, rows that move, and a plain sibling.
TEST_F(QuantisedLoadTest, ADeviceGetsTheBytesOfEveryLayout) {
  store_awq("awq", 8, 0.5f);
  store("block.weight", {300, 200}, DType::kF8E4M3, 3);
  store("block.weight_scale_inv", {3, 2}, DType::kF32, 0.25f);
  store("power.weight", {300, 200}, DType::kF8E4M3, 3);
  store("power.weight_scale_inv", {3, 2}, DType::kU8, 125);
  store("row.weight", {7, 64}, DType::kF8E4M3, 3);
  store("row.weight_scale", {7, 1}, DType::kF32, 2);
  store("int8.weight", {9, 65}, DType::kI8, -5);
  store("int8.weight_scale", {9, 1}, DType::kF32, 2);
  store_nvfp4("fours", 9, 0.25f);
  store_nvfp4("packed", 9, 4, true);
  store("plain.weight", {8, 64}, DType::kBf16, 3);
  WeightSpec mixed{
      .name = "mixed",
      .shape = {16, 64},
      .alternatives = {concatenated({{"awq.weight", {8, 64}}, {"plain.weight", {8, 64}}})}};
  WeightSpec moved{
      .name = "moved",
      .shape = {300, 200},
      .alternatives = {permuted({"block.weight", {300, 200}},
                                {{.source_row = 128, .target_row = 0, .num_rows = 172},
                                 {.source_row = 0, .target_row = 172, .num_rows = 128}})}};
  WeightSpec powers = fused({"power"}, 300, 200), rows = fused({"row"}, 7, 64),
             bytes = fused({"int8"}, 9, 65), fours = fused({"fours"}, 9, 64),
             divided = fused({"packed"}, 9, 64);
  powers.name = "powers";
  rows.name = "rows";
  bytes.name = "bytes";
  fours.name = "fours";
  divided.name = "divided";
  device::CpuDevice device(1);
  for (const auto& [spec, config] :
       {std::pair{mixed, kAwq}, std::pair{moved, kFp8}, std::pair{powers, kFp8},
        std::pair{rows, R"({"quant_method": "fp8"})"},
        std::pair{bytes, R"({"quant_method": "w8a8_int8"})"}, std::pair{fours, kModelOpt},
        std::pair{divided, kNvfp4Packed}}) {
    SCOPED_TRACE(spec.name);
    const LoadOptions quiet{.dtype = DType::kBf16, .ignored_prefixes = {""}};
    LoadOptions to_device = quiet;
    to_device.device = &device;
    const Result<LoadedWeights> host = load({spec}, config, quiet);
    const Result<LoadedWeights> sent = load({spec}, config, to_device);
    ASSERT_TRUE(host.ok() && sent.ok()) << sent.status().to_string();
    EXPECT_EQ(packed_bytes((*sent)[spec.name]), packed_bytes((*host)[spec.name]));
    if (spec.name != "powers") continue;
    const quant::PackedRows& packed = (*host)[spec.name].packed->parts[0].packed;
    EXPECT_EQ(quant::dequantised_element(packed, 299, 199), 0.75f) << "2^(125 - 127) times 3";
  }
}

// The groups of columns in activation order are part of the arena, where new weights replace them.
TEST_F(QuantisedLoadTest, ADeviceGetsTheGroupsOfColumnsInActivationOrder) {
  constexpr const char* kGptq =
      R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true, "sym": false})";
  store("w.qweight", {8, 8}, DType::kI32);
  store("w.qzeros", {2, 1}, DType::kI32);
  store("w.scales", {2, 8}, DType::kF16, 0.5f);
  Tensor index({64}, DType::kI32);
  for (int64_t k = 0; k < 64; ++k) index.span<int32_t>()[static_cast<size_t>(k)] = k % 3 == 0;
  tensors_.push_back(std::move(index));
  names_.emplace_back("w.g_idx");
  const std::vector<WeightSpec> specs = {fused({"w"}, 8, 64)};
  device::CpuDevice device(1);
  LoadOptions options{.dtype = DType::kBf16};
  options.device = &device;
  Result<LoadedWeights> used = load(specs, kGptq, options);
  ASSERT_TRUE(used.ok()) << used.status().to_string();
  const auto groups = [&] {
    const quant::PackedRows& rows = (*used)["w"].packed->parts[0].packed;
    EXPECT_NE(rows.gpu_group_index, nullptr);
    return std::vector<int32_t>(rows.gpu_group_index, rows.gpu_group_index + 64);
  };
  const std::vector<int32_t> before = groups();
  for (size_t k = 0; k < 64; ++k) EXPECT_EQ(before[k], k % 3 == 0 ? 1 : 0);
  const Result<LoadedWeights> other = load(specs, kGptq, options);
  ASSERT_TRUE(other.ok() && used->check_alike(*other).ok());
  const auto stream = device.create_stream().value();
  ASSERT_TRUE(used->replace(*other, stream.get()).ok());
  EXPECT_EQ(groups(), before);
}

TEST_F(QuantisedLoadTest, RowsOfABlockShareScalesAsFarAsTheyLieTogether) {
  store("w.weight", {384, 32}, DType::kF8E4M3, 1);
  store("w.weight_scale_inv", {3, 1}, DType::kF32, 2);
  // Returns how many rows share a scale, and how many rows of the first block precede the weight's.
  const auto shared = [&](const std::vector<RowRun>& runs) {
    int64_t num_rows = 0;
    for (const RowRun& run : runs) num_rows += run.num_rows;
    const WeightSpec spec{.name = "w",
                          .shape = {num_rows, 32},
                          .alternatives = {permuted({"w.weight", {384, 32}}, runs)}};
    const Result<LoadedWeights> loaded = load({spec}, kFp8);
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    const quant::PackedRows& rows = (*loaded)["w"].packed->parts[0].packed;
    return std::pair(rows.rows_per_scale, rows.first_scale_rows);
  };
  using Shared = std::pair<int64_t, int64_t>;
  using Run = RowRun;
  EXPECT_EQ(shared({Run{.num_rows = 384}}), Shared(128, 0));
  EXPECT_EQ(shared({Run{.source_row = 100, .num_rows = 200}}), Shared(128, 100));
  EXPECT_EQ(shared({Run{.source_row = 128, .num_rows = 256},
                    Run{.source_row = 0, .target_row = 256, .num_rows = 128}}),
            Shared(128, 0));
  EXPECT_EQ(shared({Run{.source_row = 192, .num_rows = 192},
                    Run{.source_row = 0, .target_row = 192, .num_rows = 192}}),
            Shared(128, 64));
  EXPECT_EQ(shared({Run{.source_row = 0, .num_rows = 100},
                    Run{.source_row = 100, .target_row = 100, .num_rows = 284}}),
            Shared(4, 0));
  EXPECT_EQ(shared({Run{.num_rows = 192, .source_step = 2},
                    Run{.source_row = 1, .target_row = 192, .num_rows = 192, .source_step = 2}}),
            Shared(1, 0));
}

// kv_b_proj, whose columns are read, too.
TEST_F(QuantisedLoadTest, AWeightWhoseColumnsAreReadIsDequantisedOnADevice) {
  WeightSpec spec = fused({"a.kv_proj"}, 300, 256);
  spec.packing = Packing::kColumns;
  device::CpuDevice device(1);
  LoadOptions options{.dtype = DType::kBf16, .num_threads = 1};
  options.rounding = Rounding{.scheme = quant::Scheme::kInt8};
  const Result<LoadedWeights> packed =
      load_weights(std::make_unique<DummyWeights>(1), std::vector{spec}, options);
  options.device = &device;
  ::testing::internal::CaptureStderr();
  const Result<LoadedWeights> dense =
      load_weights(std::make_unique<DummyWeights>(1), std::vector{spec}, options);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("1 quantised weights are dequantised to bfloat16 while they load, because "
                        "their columns are read, too, or their rows are looked up"));
  ASSERT_TRUE(packed.ok() && dense.ok()) << dense.status().to_string();
  const TensorView& weight = (*dense)["w"];
  ASSERT_EQ(weight.dtype, DType::kBf16);
  for (int64_t row = 0; row < 300; ++row) {
    for (int64_t k = 0; k < 256; ++k) {
      ASSERT_EQ(weight.row<Bf16>(row)[k].bits, to_bf16(element((*packed)["w"], row, k)).bits)
          << row << ", " << k;
    }
  }
}

TEST_F(QuantisedLoadTest, ADeviceThatIsTooSmallIsToldThePackedSize) {
  SmallDevice device;
  LoadOptions options{.dtype = DType::kBf16, .device = &device};
  options.rounding = Rounding{.scheme = quant::Scheme::kInt8};
  const Result<LoadedWeights> loaded = load_weights(
      std::make_unique<DummyWeights>(1), std::vector{fused({"a.q_proj"}, 32768, 1024)}, options);
  EXPECT_EQ(loaded.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(loaded.status().message(),
              HasSubstr("the weights need 0.03 GiB, a small device has 0.00 GiB"));
}

TEST_F(QuantisedLoadTest, ModulesOfOneFormatAreFusedIntoOnePart) {
  store_awq("q", 8);
  store_awq("k", 8, 2);
  const Result<LoadedWeights> loaded = load({fused({"q", "k"}, 8, 64)}, kAwq);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const TensorView& weight = (*loaded)["w"];
  EXPECT_EQ(weight.dtype, DType::kPacked);
  EXPECT_EQ(weight.shape, (Shape{16, 64}));
  ASSERT_EQ(weight.packed->parts.size(), 1u);
  EXPECT_EQ(quant::scale_of(weight.packed->parts[0].packed, 7, 0), 1);
  EXPECT_EQ(quant::scale_of(weight.packed->parts[0].packed, 8, 1), 2);
  EXPECT_EQ(loaded->num_parameters(), 16 * 64);
}

TEST_F(QuantisedLoadTest, APlainSiblingIsAPartOfItsOwn) {
  store_awq("a", 8);
  store("b.weight", {8, 64}, DType::kBf16, 3);
  const Result<LoadedWeights> loaded = load({fused({"a", "b"}, 8, 64)}, kAwq);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const TensorView& weight = (*loaded)["w"];
  ASSERT_EQ(weight.packed->parts.size(), 2u);
  EXPECT_EQ(element(weight, 7, 63), 0);
  EXPECT_EQ(element(weight, 8, 0), 3);
}

// The head of a quantised model is often stored as it was trained, whether or not the list of
// modules says so.
TEST_F(QuantisedLoadTest, AHeadThatIsStoredPlainStaysPlain) {
  store("model.layers.0.mlp.down_proj.weight", {128, 128}, DType::kF8E4M3, 1);
  store("model.layers.0.mlp.down_proj.weight_scale_inv", {1, 1}, DType::kF32, 2);
  store("mtp.fc.weight", {8, 64}, DType::kBf16, 3);
  WeightSpec head = fused({"mtp.fc"}, 8, 64);
  head.name = "head";
  for (const char* config : {kFp8, R"({"quant_method": "fp8", "weight_block_size": [128, 128],
                  "modules_to_not_convert": ["mtp"]})"}) {
    SCOPED_TRACE(config);
    const Result<LoadedWeights> loaded = load(
        {fused({"model.layers.0.mlp.down_proj"}, 128, 128), head}, config, {.dtype = DType::kBf16});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(element((*loaded)["w"], 5, 7), 2);
    const TensorView& plain = (*loaded)["head"];
    ASSERT_EQ(plain.dtype, DType::kBf16);
    EXPECT_EQ(to_float(plain.row<Bf16>(7)[63]), 3);
  }
}

TEST_F(QuantisedLoadTest, RowsThatMoveTakeTheirBlockScalesAlong) {
  store("w.weight", {256, 32}, DType::kF8E4M3, 1);
  Tensor scales({2, 1}, DType::kF32);
  scales.span<float>()[0] = 1;
  scales.span<float>()[1] = 2;
  tensors_.push_back(std::move(scales));
  names_.emplace_back("w.weight_scale_inv");
  const WeightSpec spec{
      .name = "w",
      .shape = {256, 32},
      .alternatives = {permuted({"w.weight", {256, 32}},
                                {{.source_row = 100, .target_row = 0, .num_rows = 156},
                                 {.source_row = 0, .target_row = 156, .num_rows = 100}})}};
  const Result<LoadedWeights> loaded = load({spec}, kFp8);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(element((*loaded)["w"], 27, 5), 1);    // row 127
  EXPECT_EQ(element((*loaded)["w"], 28, 5), 2);    // row 128
  EXPECT_EQ(element((*loaded)["w"], 156, 31), 1);  // row 0
}

TEST_F(QuantisedLoadTest, AGroupSizeThatDoesNotDivideIsNamed) {
  store("w.qweight", {64, 1}, DType::kI32);
  store("w.qzeros", {3, 1}, DType::kI32);
  store("w.scales", {3, 8}, DType::kF16, 1);
  EXPECT_THAT(error({fused({"w"}, 8, 64)}, kAwq),
              HasSubstr("\"w\": the group size does not divide the width: 64 columns in 3 groups"));
}

TEST_F(QuantisedLoadTest, AGroupSizeOtherThanTheConfigsIsNamed) {
  store_awq("w", 8);
  EXPECT_THAT(
      error({fused({"w"}, 8, 64)}, R"({"quant_method": "awq", "bits": 4, "group_size": 64})"),
      HasSubstr("\"w\": quantization_config says groups of 64, the scales say 32"));
}

TEST_F(QuantisedLoadTest, PackedShapesThatDisagreeAreNamed) {
  store_awq("w", 16);
  EXPECT_THAT(error({fused({"w"}, 8, 64)}, kAwq),
              HasSubstr("\"w\": qweight has shape [64, 2], [64, 1] is needed"));
}

TEST_F(QuantisedLoadTest, MissingScalesAreNamed) {
  store_awq("q", 8);
  store("k.qweight", {64, 1}, DType::kI32);
  store("k.qzeros", {2, 1}, DType::kI32);
  EXPECT_THAT(error({fused({"q", "k"}, 8, 64)}, kAwq), HasSubstr("\"k\": \"k.scales\" is missing"));
  names_.clear();
  tensors_.clear();
  store("f.weight", {8, 64}, DType::kF8E4M3, 1);
  EXPECT_THAT(
      error({fused({"f"}, 8, 64)}, kFp8),
      HasSubstr("\"f\": weight is F8_E4M3, but there is no weight_scale or weight_scale_inv"));
}

TEST_F(QuantisedLoadTest, NanScalesAreNamed) {
  store_awq("w", 8, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(error({fused({"w"}, 8, 64)}, kAwq),
              AllOf(HasSubstr("w.weight"), HasSubstr("the scale of row 0, group 0 is nan")));
}

TEST_F(QuantisedLoadTest, AFileThatContradictsItsConfigIsRefused) {
  store_awq("model.layers.0.mlp.up_proj", 8);
  const std::vector<WeightSpec> specs = {fused({"model.layers.0.mlp.up_proj"}, 8, 64)};
  EXPECT_THAT(
      error(specs, nullptr),
      HasSubstr("\"model.layers.0.mlp.up_proj\": it is stored as AWQ, but config.json has no "
                "quantization_config"));
  EXPECT_THAT(error(specs, kFp8), HasSubstr("stored as AWQ, but quant_method is fp8"));
  EXPECT_THAT(
      error(specs, R"({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["up_proj"]})"),
      HasSubstr("but quantization_config says it is not quantised"));
}

WeightSpec experts_of(int64_t count, int64_t N, int64_t K) {
  return {.name = "w",
          .shape = {count, N, K},
          .alternatives = {stacked(count, {{"experts.#.weight", {N, K}}})},
          .packing = Packing::kAlike};
}

TEST_F(QuantisedLoadTest, ExpertsThatAreQuantisedAlikeAreOnePart) {
  store_awq("experts.0", 8);
  store_awq("experts.1", 8, 2);
  const Result<LoadedWeights> loaded = load({experts_of(2, 8, 64)}, kAwq);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ((*loaded)["w"].packed->parts.size(), 1u);
}

// The factor of NVFP4 multiplies in ModelOpt's files and divides in those of compressed-tensors;
// that of activations is not used. Modules of different factors make one part.
TEST_F(QuantisedLoadTest, FactorsOfNvfp4MultiplyOrDivideByTheirName) {
  for (const bool divided : {false, true}) {
    SCOPED_TRACE(divided);
    names_.clear();
    tensors_.clear();
    store_nvfp4("q", 8, 0.25f, divided);
    store_nvfp4("k", 8, 4, divided);
    const Result<LoadedWeights> loaded =
        load({fused({"q", "k"}, 8, 64)}, divided ? kNvfp4Packed : kModelOpt);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    const TensorView& weight = (*loaded)["w"];
    EXPECT_EQ(weight.shape, (Shape{16, 64}));
    EXPECT_EQ(weight.packed->parts.size(), 1u);
    EXPECT_EQ(element(weight, 7, 63), divided ? 12 : 0.75f);
    EXPECT_EQ(element(weight, 8, 0), divided ? 0.75f : 12);
    EXPECT_EQ(weight.packed->num_bytes(), 16 * (64 + 8)) << "half a chunk is padded";
  }
}

TEST_F(QuantisedLoadTest, ExpertsOfNvfp4AreOnePartWhateverTheirFactors) {
  store_nvfp4("experts.0", 8, 1);
  store_nvfp4("experts.1", 8, 2);
  const Result<LoadedWeights> loaded = load({experts_of(2, 8, 64)}, kModelOpt);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ((*loaded)["w"].packed->parts.size(), 1u);
  EXPECT_EQ(element((*loaded)["w"], 7, 3), 3);
  EXPECT_EQ(element((*loaded)["w"], 8, 3), 6);
}

// All experts of a layer in one tensor, whose scales are named as a parameter's are.
TEST_F(QuantisedLoadTest, ExpertsInOneTensorAreServedInFp8AndNvfp4) {
  WeightSpec spec{.name = "w",
                  .shape = {2, 256, 64},
                  .alternatives = {whole({"experts.gate_up_proj", {2, 256, 64}})},
                  .packing = Packing::kAlike};
  store("experts.gate_up_proj", {2, 256, 64}, DType::kF8E4M3, 3);
  store("experts.gate_up_proj_scale_inv", {2, 2, 1}, DType::kF32, 0.5f);
  store("experts.gate_up_proj_input_scale", {2}, DType::kF32, 9);
  tensors_[1].span<float>()[2] = 4;
  Result<LoadedWeights> loaded = load({spec}, kFp8);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  ASSERT_EQ((*loaded)["w"].packed->parts.size(), 1u);
  EXPECT_EQ((*loaded)["w"].packed->parts[0].packed.rows_per_scale, 128);
  EXPECT_EQ(element((*loaded)["w"], 255, 5), 1.5f);
  EXPECT_EQ(element((*loaded)["w"], 256, 5), 12);
  EXPECT_EQ(element((*loaded)["w"], 384, 5), 1.5f);

  names_.clear();
  tensors_.clear();
  HubPiece columns{.tensor = {"experts.gate_up_proj", {2, 64, 256}}, .form = RowForm::kInputMajor};
  columns.runs = {{.num_rows = 512}};
  spec.alternatives = {{columns}};
  store("experts.gate_up_proj", {2, 64, 256}, DType::kF8E4M3, 3);
  tensors_[0].span<uint8_t>()[5 * 256 + 7] = quant::float_to_e4m3(2);
  store("experts.gate_up_proj_scale_inv", {2, 1, 2}, DType::kF32, 0.5f);
  tensors_[1].span<float>()[1] = 4;
  loaded = load({spec}, kFp8);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(element((*loaded)["w"], 7, 5), 1);
  EXPECT_EQ(element((*loaded)["w"], 7, 6), 1.5f);
  EXPECT_EQ(element((*loaded)["w"], 128, 6), 12);
  EXPECT_EQ(element((*loaded)["w"], 256, 6), 1.5f);

  names_.clear();
  tensors_.clear();
  spec.alternatives = {whole({"experts.gate_up_proj", {2, 256, 64}})};
  store("experts.gate_up_proj", {2, 256, 32}, DType::kU8, 0x33);
  store("experts.gate_up_proj_weight_scale", {2, 256, 4}, DType::kF8E4M3, 2);
  store("experts.gate_up_proj_weight_scale_2", {2}, DType::kF32, 1);
  tensors_[2].span<float>()[1] = 2;
  loaded = load({spec}, kModelOpt);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(element((*loaded)["w"], 255, 5), 3);
  EXPECT_EQ(element((*loaded)["w"], 256, 5), 6);
}

// compressed-tensors' other format of packed floats.
TEST_F(QuantisedLoadTest, PackedMxfp4IsToldFromNvfp4ByItsScales) {
  store("w.weight_packed", {8, 32}, DType::kU8, 0x33);
  store("w.weight_scale", {8, 2}, DType::kU8, 128);
  const Result<LoadedWeights> loaded = load(
      {fused({"w"}, 8, 64)},
      R"({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups": {}})");
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(element((*loaded)["w"], 7, 63), 3);
}

TEST_F(QuantisedLoadTest, Nvfp4WithoutAFactorOrWithABadOneIsRefusedByName) {
  const std::vector<WeightSpec> specs = {fused({"model.layers.0.mlp.gate"}, 8, 64)};
  store_nvfp4("model.layers.0.mlp.gate", 8, 0);
  EXPECT_THAT(error(specs, kModelOpt),
              HasSubstr("stored as NVFP4, but quantization_config says it is not quantised"));
  EXPECT_THAT(error(specs, kFp8), HasSubstr("stored as NVFP4, but quant_method is fp8"));
  EXPECT_THAT(error(specs, nullptr), HasSubstr("config.json has no quantization_config"));
  constexpr const char* kAny = R"({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4"})";
  EXPECT_THAT(error(specs, kAny),
              AllOf(HasSubstr("model.layers.0.mlp.gate.weight"),
                    HasSubstr("weight_scale_2 is 0, a positive finite number is needed")));
  names_.erase(names_.begin() + 2);
  tensors_.erase(tensors_.begin() + 2);
  EXPECT_THAT(error(specs, kAny),
              HasSubstr("\"model.layers.0.mlp.gate.weight_scale_2\" is missing"));
}

TEST_F(QuantisedLoadTest, APlainExpertAmongQuantisedOnesIsRefusedByName) {
  store_awq("experts.0", 8);
  store("experts.1.weight", {8, 64}, DType::kBf16, 1);
  const Status status = load({experts_of(2, 8, 64)}, kAwq).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("\"experts.0.weight\" is int4, groups of 32"),
                    HasSubstr("\"experts.1.weight\" is bfloat16"),
                    HasSubstr("the experts of a layer are served quantised alike")));
}

TEST_F(QuantisedLoadTest, ExpertsOfDifferentActivationOrdersAreRefusedByName) {
  constexpr const char* kGptq =
      R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true, "sym": false})";
  for (const bool same_order : {true, false}) {
    SCOPED_TRACE(same_order);
    names_.clear();
    tensors_.clear();
    for (const int32_t expert : {0, 1}) {
      const std::string module = "experts." + std::to_string(expert);
      store(module + ".qweight", {8, 8}, DType::kI32);
      store(module + ".qzeros", {2, 1}, DType::kI32);
      store(module + ".scales", {2, 8}, DType::kF16, 1);
      Tensor order({64}, DType::kI32);  // every other column in group 0
      for (int32_t k = 0; k < 64; ++k) {
        order.span<int32_t>()[static_cast<size_t>(k)] = (k + (same_order ? 0 : expert)) % 2;
      }
      tensors_.push_back(std::move(order));
      names_.push_back(module + ".g_idx");
    }
    const Result<LoadedWeights> loaded = load({experts_of(2, 8, 64)}, kGptq);
    EXPECT_EQ(loaded.ok(), same_order) << loaded.status().to_string();
    if (same_order) continue;
    EXPECT_THAT(loaded.status().message(),
                AllOf(HasSubstr("\"experts.1.weight\" is int4, groups in activation order"),
                      HasSubstr("quantise them without activation order")));
  }
}

TEST_F(QuantisedLoadTest, ATableOfRowsStaysQuantisedOnTheHostAndIsDenseOnADevice) {
  store("model.embed_tokens.weight", {16, 64}, DType::kI8, 3);
  store("model.embed_tokens.weight_scale", {16, 1}, DType::kF32, 0.5f);
  WeightSpec spec = fused({"model.embed_tokens"}, 16, 64);
  spec.packing = Packing::kLookedUp;
  const char* const config = R"({"quant_method": "w8a8_int8"})";
  const Result<LoadedWeights> packed = load({spec}, config);
  ASSERT_TRUE(packed.ok()) << packed.status().to_string();
  EXPECT_EQ((*packed)["w"].dtype, DType::kPacked);
  EXPECT_EQ(element((*packed)["w"], 15, 63), 1.5f);
  device::CpuDevice device(1);
  const Result<LoadedWeights> dense =
      load({spec}, config, {.dtype = DType::kBf16, .device = &device});
  ASSERT_TRUE(dense.ok()) << dense.status().to_string();
  ASSERT_EQ((*dense)["w"].dtype, DType::kBf16);
  EXPECT_EQ(to_float((*dense)["w"].row<Bf16>(15)[63]), 1.5f);
  // Rounding at load leaves such a table as it is.
  names_.clear();
  tensors_.clear();
  store("model.table.weight", {16, 64}, DType::kBf16, 3);
  WeightSpec table = fused({"model.table"}, 16, 64);
  table.packing = Packing::kLookedUp;
  const Result<LoadedWeights> plain =
      load({table}, nullptr, {.rounding = Rounding{.scheme = quant::Scheme::kInt8}});
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  EXPECT_EQ((*plain)["w"].dtype, DType::kBf16);
}

// Without a dtype, the first plain weight says what the run is; in an fp32 one nothing is rounded.
TEST_F(QuantisedLoadTest, OnlyARunOf16BitsMayRoundTheFactors) {
  struct Case {
    DType stored;
    std::optional<DType> asked;
    DType run;
  };

  for (const auto& [stored, asked, run] :
       {Case{DType::kF32, std::nullopt, DType::kF32},
        Case{DType::kBf16, std::nullopt, DType::kBf16},
        Case{DType::kF16, std::nullopt, DType::kF16}, Case{DType::kF32, DType::kBf16, DType::kBf16},
        Case{DType::kBf16, DType::kF32, DType::kF32}}) {
    SCOPED_TRACE(to_string(stored));
    names_.clear();
    tensors_.clear();
    store_awq("w", 8);
    store("table.weight", {4, 64}, stored);
    WeightSpec table = fused({"table"}, 4, 64);
    table.name = "table";
    table.packing = Packing::kLookedUp;
    const Result<LoadedWeights> loaded = load({table, fused({"w"}, 8, 64)}, kAwq, {.dtype = asked});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(loaded->run_dtype(), run);
    EXPECT_EQ((*loaded)["w"].packed->parts[0].packed.may_round_x, run != DType::kF32);
  }
}

TEST_F(QuantisedLoadTest, ZeroBiasesOfExportersAndActivationScalesAreIgnored) {
  store_awq("w", 8);
  store("w.bias", {8}, DType::kF16, 0);
  store("w.input_scale", {1}, DType::kF32, 1);
  store("w.activation_scale", {}, DType::kBf16, 1);
  EXPECT_TRUE(load({fused({"w"}, 8, 64)}, kAwq).ok());
  tensors_[3].span<F16>()[5] = to_f16(0.5f);
  EXPECT_THAT(error({fused({"w"}, 8, 64)}, kAwq), HasSubstr("1 unexpected: \"w.bias\""));
}

TEST_F(QuantisedLoadTest, RoundsAPlainCheckpointAtLoad) {
  store("model.layers.0.mlp.down_proj.weight", {8, 64}, DType::kBf16, 0.5f);
  store("model.layers.0.mlp.gate.weight", {8, 64}, DType::kBf16, 0.5f);
  const Result<LoadedWeights> loaded =
      load({fused({"model.layers.0.mlp.down_proj", "model.layers.0.mlp.gate"}, 8, 64)}, nullptr,
           {.rounding = Rounding{.scheme = quant::Scheme::kInt8}});
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const TensorView& weight = (*loaded)["w"];
  ASSERT_EQ(weight.packed->parts.size(), 2u);
  EXPECT_EQ(weight.packed->parts[0].packed.format.code, quant::Code::kU8);
  EXPECT_NEAR(element(weight, 3, 9), 0.5f, 1e-6f);
  EXPECT_EQ(weight.packed->parts[1].plain.dtype, DType::kBf16);  // the router
}

TEST(QuantizationConfigTest, RefusesWhatIsNotServedByName) {
  EXPECT_THAT(config_error(R"({"quant_method": "bitsandbytes"})"),
              AllOf(HasSubstr("bitsandbytes"), HasSubstr("awq, gptq, fp8, compressed-tensors")));
  EXPECT_THAT(config_error(R"({"quant_method": "awq", "bits": 4, "version": "gemv"})"),
              HasSubstr("gemv"));
  EXPECT_THAT(config_error(R"({"quant_method": "gptq", "bits": 3})"), HasSubstr("3 bits"));
  EXPECT_THAT(config_error(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})"),
              HasSubstr("marlin"));
  EXPECT_THAT(config_error(R"({"quant_method": "compressed-tensors", "format": "marlin-24",
                              "config_groups": {}})"),
              HasSubstr("marlin-24"));
  EXPECT_THAT(config_error(R"({"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"})"),
              AllOf(HasSubstr("\"NVFP4_AWQ\""), HasSubstr("FP8 and NVFP4 are served")));
  EXPECT_THAT(config_error(R"({"quant_algo": "MIXED_PRECISION", "quantized_layers": {
                              "a.q_proj": {"quant_algo": "NVFP4"},
                              "a.k_proj": {"quant_algo": "W4A8_AWQ"}}})"),
              AllOf(HasSubstr("\"a.k_proj\""), HasSubstr("\"W4A8_AWQ\"")));
}

TEST(QuantizationConfigTest, ModelOptsFormatsAreTakenTogether) {
  const QuantizationConfig mixed = config_of(
      R"({"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", "quantized_layers": {
          "a.q_proj": {"quant_algo": "NVFP4", "group_size": 16}, "a.k_proj": {"quant_algo": "FP8"}}})");
  EXPECT_EQ(mixed.method, QuantMethod::kModelOpt);
  EXPECT_EQ(mixed.kv_cache, KvCacheScheme::kFp8);
  EXPECT_TRUE(mixed.is_of_weights);
  const QuantizationConfig newer = config_of(
      R"({"quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0.*"], "config_groups": {
          "group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}})");
  EXPECT_EQ(newer.method, QuantMethod::kModelOpt) << "without quant_method";
  EXPECT_TRUE(newer.ignores("model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(newer.ignores("model.layers.10.mlp.up_proj"));
}

TEST(QuantizationConfigTest, OlderFilesAreRecognisedByTheirKeys) {
  EXPECT_EQ(config_of(R"({"bits": 4, "desc_act": true})").method, QuantMethod::kGptq);
  EXPECT_EQ(config_of(R"({"w_bit": 4, "q_group_size": 64})").method, QuantMethod::kAwq);
  EXPECT_EQ(config_of(R"({"activation_scheme": "dynamic"})").method, QuantMethod::kFp8);
}

TEST(QuantizationConfigTest, EveryMethodMatchesInItsOwnWay) {
  const QuantizationConfig fp8 = config_of(
      R"({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.1.mlp.gate", "lm_head"]})");
  EXPECT_TRUE(fp8.ignores("model.layers.1.mlp.gate"));
  EXPECT_TRUE(fp8.ignores("layers.1.mlp.gate"));
  EXPECT_TRUE(fp8.ignores("model.layers.1.mlp.gate.inner"));
  EXPECT_FALSE(fp8.ignores("model.layers.1.mlp.gate_proj"));
  EXPECT_FALSE(fp8.ignores("model.layers.10.mlp.gate"));
  const QuantizationConfig awq = config_of(
      R"({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["shared_expert"]})");
  EXPECT_TRUE(awq.ignores("model.layers.1.mlp.shared_expert.up_proj"));
  const QuantizationConfig tensors = config_of(
      R"({"quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*self_attn.*"],
          "config_groups": {}})");
  EXPECT_TRUE(tensors.ignores("model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(tensors.ignores("model.lm_head"));
  const QuantizationConfig mxfp4 = config_of(
      R"({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})");
  EXPECT_TRUE(mxfp4.ignores("model.layers.17.self_attn.q_proj"));
  EXPECT_FALSE(mxfp4.ignores("model.layers.17.mlp.experts.down_proj"));
  const QuantizationConfig gptq = config_of(
      R"({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*down_proj": {}, "+:.*up_proj": {"bits": 8}}})");
  EXPECT_TRUE(gptq.ignores("model.layers.0.mlp.down_proj"));
  EXPECT_EQ(gptq.bits_of("model.layers.0.mlp.up_proj"), 8);
  EXPECT_EQ(gptq.bits_of("model.layers.0.mlp.gate_proj"), 4);
}

// The recorded checkpoints with their dequantised weights: ours must be theirs, bit for bit.
TEST(QuantisedGoldenTest, DequantisedWeightsAreTheRecordedOnes) {
  HEDDLE_SHARED_PATH_OR_SKIP(root, "golden");
  int64_t checked = 0;
  for (const char* name :
       {"qwen3_fp8_block_partial", "qwen3_fp8_channel_ct", "qwen3_fp8_tensor",
        "qwen3_gptq_actorder", "qwen3_int8_channel_ct", "qwen3_w4a16_ct", "gpt_oss_mxfp4"}) {
    SCOPED_TRACE(name);
    const auto folder = root / name;
    const Result<CheckpointFiles> files = CheckpointFiles::open(folder);
    ASSERT_TRUE(files.ok()) << files.status().to_string();
    const Result<SafetensorsFile> expected =
        SafetensorsFile::open(folder / "dequantised.safetensors");
    ASSERT_TRUE(expected.ok()) << expected.status().to_string();
    const Result<std::string> text = read_text_file(folder / "config.json", 1 << 20);
    ASSERT_TRUE(text.ok());
    const Result<QuantizationConfig> config =
        parse_quantization_config(nlohmann::json::parse(*text)["quantization_config"]);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    const QuantisedModules modules(*files, &*config, /*on_gpu=*/false);
    for (const TensorEntry& entry : expected->tensors()) {
      SCOPED_TRACE(entry.name);
      const bool experts = entry.shape.rank() == 3;  // stored [E, K, N]
      const HubPiece piece{.tensor = {entry.name, entry.shape},
                           .form = experts ? RowForm::kInputMajor : RowForm::kLastDimension};
      std::unordered_set<std::string> used;
      const auto module = modules.find(piece, used);
      ASSERT_TRUE(module.ok()) << module.status().to_string();
      ASSERT_TRUE(module->has_value());
      const auto matrix = quant::unpack((*module)->matrix, (*module)->format);
      ASSERT_TRUE(matrix.ok()) << matrix.status().to_string();
      std::vector<std::byte> codes(static_cast<size_t>(matrix->N * matrix->format.code_bytes()));
      std::vector<std::byte> scales(static_cast<size_t>(matrix->N * matrix->format.scale_bytes()));
      std::vector<uint8_t> zeros(matrix->zeros.size());
      const quant::PackedRows rows{.format = matrix->format,
                                   .num_rows = matrix->N,
                                   .codes = codes.data(),
                                   .scales = scales.data(),
                                   .zeros = zeros.empty() ? nullptr : zeros.data()};
      quant::pack_rows(*matrix, 0, matrix->N, rows, 0);
      const auto* truth = reinterpret_cast<const float*>(expected->bytes(entry).data());
      const int64_t K = matrix->format.K;
      const int64_t rows_each = experts ? entry.shape[2] : matrix->N;
      std::vector<float> row(static_cast<size_t>(K));
      for (int64_t n = 0; n < matrix->N; ++n) {
        quant::dequantise_row(rows, n, 0, K, row.data());
        for (int64_t k = 0; k < K; ++k) {
          const int64_t place =
              experts ? (n / rows_each * K + k) * rows_each + n % rows_each : n * K + k;
          ASSERT_EQ(row[static_cast<size_t>(k)], truth[place]) << "row " << n << ", column " << k;
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 100'000);
}

TEST(QuantiseCheckpointTest, WritesWhatLoadsAgainAndResumes) {
  testing::TemporaryFolder folder;
  const auto source = folder.path() / "source";
  std::filesystem::create_directories(source);
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 0.05f);
  const auto noise = [&](const Shape& shape) {
    Tensor tensor(shape, DType::kBf16);
    for (Bf16& value : tensor.span<Bf16>()) value = to_bf16(normal(random));
    return tensor;
  };
  const Tensor up = noise({136, 96});
  const Tensor odd = noise({16, 40});
  const Tensor head = noise({24, 96});
  const std::vector<NamedTensor> named = {{"model.layers.0.mlp.up_proj.weight", up.view()},
                                          {"model.layers.0.mlp.odd_proj.weight", odd.view()},
                                          {"lm_head.weight", head.view()}};
  ASSERT_TRUE(write_safetensors(source / "model.safetensors", named).ok());
  std::ofstream(source / "config.json") << R"({"model_type": "llama"})";
  std::ofstream(source / "tokenizer.json") << "{}";

  const auto run = [&](const char* output, QuantisedFormat format, bool head_too = false) {
    return quantise_checkpoint({.source = source,
                                .output = folder.path() / output,
                                .format = format,
                                .group_size = 32,
                                .include_lm_head = head_too,
                                .shard_bytes = 1});
  };
  for (const QuantisedFormat format :
       {QuantisedFormat::kAwq, QuantisedFormat::kFp8Block, QuantisedFormat::kInt8}) {
    const std::string output = "out" + std::to_string(static_cast<int>(format));
    const auto report = run(output.c_str(), format);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    const bool awq = format == QuantisedFormat::kAwq;
    EXPECT_EQ(report->num_quantised, awq ? 1 : 2);
    EXPECT_EQ(report->unfit.size(), awq ? 1u : 0u);
    EXPECT_EQ(report->num_shards, 3);
    const auto folder_out = folder.path() / output;
    EXPECT_TRUE(std::filesystem::exists(folder_out / "tokenizer.json"));
    EXPECT_FALSE(std::filesystem::exists(folder_out / "quantize_plan.json"));

    const Result<std::string> text = read_text_file(folder_out / "config.json", 1 << 20);
    ASSERT_TRUE(text.ok());
    const Result<QuantizationConfig> config =
        parse_quantization_config(nlohmann::json::parse(*text)["quantization_config"]);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    EXPECT_TRUE(config->ignores("lm_head"));
    Result<CheckpointFiles> files = CheckpointFiles::open(folder_out);
    ASSERT_TRUE(files.ok()) << files.status().to_string();
    const std::vector<WeightSpec> specs = {
        {.name = "up",
         .shape = {136, 96},
         .alternatives = {whole({"model.layers.0.mlp.up_proj.weight", {136, 96}})}},
        {.name = "odd",
         .shape = {16, 40},
         .alternatives = {whole({"model.layers.0.mlp.odd_proj.weight", {16, 40}})}},
        {.name = "head", .shape = {24, 96}, .alternatives = {whole({"lm_head.weight", {24, 96}})}}};
    const Result<LoadedWeights> loaded =
        load_weights(std::make_unique<CheckpointFiles>(std::move(files).value()), specs,
                     {.quantization = &*config});
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ((*loaded)["head"].dtype, DType::kBf16);
    const float tolerance = awq ? 0.02f : 0.008f;
    for (int64_t n = 0; n < 136; ++n) {
      for (int64_t k = 0; k < 96; ++k) {
        ASSERT_NEAR(element((*loaded)["up"], n, k), to_float(up.view().row<Bf16>(n)[k]), tolerance);
      }
    }
  }
  // It exists; and a partial folder of other options is not continued.
  EXPECT_THAT(run("out0", QuantisedFormat::kAwq).status().message(),
              HasSubstr("exists; remove it"));
  const auto half_done = folder.path() / "again.partial";
  std::filesystem::rename(folder.path() / "out1", half_done);
  std::ofstream(half_done / "quantize_plan.json") << "{}";
  EXPECT_THAT(run("again", QuantisedFormat::kFp8Block).status().message(),
              HasSubstr("begun with other options"));

  // One interrupted by a folder in the place of its second shard continues after the first.
  const auto blocked = folder.path() / "blocked.partial" / "model-00002-of-00003.safetensors";
  std::filesystem::create_directories(blocked / "full");
  ASSERT_FALSE(run("blocked", QuantisedFormat::kInt8, true).ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "blocked"));
  std::filesystem::remove_all(blocked);
  const auto resumed = run("blocked", QuantisedFormat::kInt8, true);
  ASSERT_TRUE(resumed.ok()) << resumed.status().to_string();
  EXPECT_EQ(resumed->num_shards_resumed, 1);
  EXPECT_EQ(resumed->num_quantised, 3);  // the head, too
}

}  // namespace
}  // namespace heddle::checkpoint
